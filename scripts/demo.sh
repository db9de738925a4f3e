#!/usr/bin/env bash
# Makes a virtual environment, installs tensorcep into it and runs the demonstration, which writes into build/demo;
# arguments go to `tensorcep demo`.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment plots
exec "$venv/bin/tensorcep" demo --output-dir "$root/build/demo" "$@"
