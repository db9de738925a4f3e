#!/usr/bin/env bash
# Makes a virtual environment, installs tensorcep with its development tools, checks style and types, and runs the tests;
# with --all also the nightly tier (those marked slow) and the examples of docstrings. Other arguments go to pytest. Tests
# on published data run when TENSORCEP_DATA names a folder that holds them.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

tier="not slow"
if [ "${1:-}" = --all ]; then
    tier="slow or not slow"
    shift
fi
prepare_environment dev
cd "$root"
if [ -z "${TENSORCEP_DATA:-}" ] && [ -d ../shared/data ]; then
    TENSORCEP_DATA="$(cd ../shared/data && pwd)"
    export TENSORCEP_DATA
fi
"$python" -m ruff check .
"$python" -m ruff format --check .
"$python" -m mypy
"$python" -m codespell_lib
# Files of tests run side by side, one process per core; all tests of a file in one, as they share fits. BLAS has no
# threads of its own, which would wait for each other's cores.
export OPENBLAS_NUM_THREADS="${OPENBLAS_NUM_THREADS:-1}"
side_by_side=(-n auto --dist loadfile)
if [ "$tier" != "not slow" ]; then
    # Examples of figures leave them open, as users do.
    "$python" -m pytest "${side_by_side[@]}" --doctest-modules tensorcep -W "ignore:More than 20 figures"
fi
exec "$python" -m pytest "${side_by_side[@]}" -m "$tier" "$@"
