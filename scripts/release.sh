#!/usr/bin/env bash
# Builds the wheel and the source archive into dist/, checks both, installs the wheel into an empty environment away from
# the sources and runs the tour's commands there, and writes the recipe for conda-forge beside them. Publishes nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

cd "$root"
base="${PYTHON:-python3}"
check_interpreter "$base"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$base" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet --disable-pip-version-check build twine
rm -rf dist
"$work/tools/bin/python" -m build --outdir dist .
"$work/tools/bin/python" -m twine check --strict dist/*

"$base" -m venv "$work/user"
"$work/user/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl
cd "$work"
user="$work/user/bin"
"$user/python" -c 'import tensorcep, sys; assert "user" in tensorcep.__file__; print("installed", tensorcep.__version__)'
"$user/tensorcep" datasets il2 -o il2.csv
"$user/tensorcep" split il2.csv train.csv test.csv --test-size 0.2
"$user/tensorcep" fit train.csv -o model.npz --rank 4 --method vmp
"$user/tensorcep" evaluate model.npz test.csv
"$user/tensorcep" predict model.npz test.csv -o predictions.csv --coverage 0.9
cd "$root"
"$base" scripts/release/conda_recipe.py dist >dist/meta.yaml
ls -l dist
