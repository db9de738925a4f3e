#!/usr/bin/env bash
# Builds the wheel, with kernels compiled for all levels of this machine's processor, and the source archive into dist/,
# checks both, installs the wheel into an empty environment away from the sources and runs the README's lines and the
# demonstration there, and writes the recipe for conda-forge beside them. With --tests it also unpacks the source archive
# and runs the quick tests in it. Publishes nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

cd "$root"
base="${PYTHON:-python3}"
check_interpreter "$base"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$base" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build twine "$root"
rm -rf dist tensorcep/_compiled
"$work/tools/bin/python" -m tensorcep.warming tensorcep/_compiled
"$work/tools/bin/python" -m build --sdist --wheel --outdir dist .
"$work/tools/bin/python" -m twine check --strict dist/*

"$base" -m venv "$work/user"
user="$work/user/bin"
"$user/python" -m pip install --quiet --disable-pip-version-check "$(echo "$root"/dist/*.whl)[plots]"
"$base" scripts/release/readme_lines.py python >"$work/lines.py"
"$base" scripts/release/readme_lines.py bash >"$work/lines.sh"
cd "$work"
"$user/python" -c 'import tensorcep, sys; assert "user" in tensorcep.__file__; print("installed", tensorcep.__version__)'
"$user/python" lines.py
PATH="$user:$PATH" bash -euo pipefail lines.sh
"$user/tensorcep" demo --quiet
if [ "${1:-}" = --tests ]; then
    tar -xzf "$root"/dist/tensorcep-*.tar.gz
    cd tensorcep-*/
    "$base" -m venv "$work/tests"
    "$work/tests/bin/python" -m pip install --quiet --disable-pip-version-check '.[dev]'
    "$work/tests/bin/python" -m pytest -q
fi
cd "$root"
"$base" scripts/release/conda_recipe.py dist >dist/meta.yaml
ls -l dist
