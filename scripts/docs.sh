#!/usr/bin/env bash
# Makes a virtual environment, installs tensorcep with what its site needs, and builds the site into build/site; nothing
# is fetched while it is built or read. Arguments go to scripts.docs.build (--no-run leaves the notebooks unexecuted).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment docs
cd "$root"
exec "$python" -m scripts.docs.build "$@"
