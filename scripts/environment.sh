# Sourced by demo.sh and test.sh: sets root and python, and offers prepare_environment EXTRA, which makes .venv and
# installs the project into it (in place, so a change of the sources needs no new installation).

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
python="$venv/bin/python"

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

check_interpreter() {
    command -v "$1" >/dev/null 2>&1 ||
        fail "'$1' was not found; install Python 3.10 or newer, or name one: PYTHON=python3.12 bash $0"
    "$1" -c '' || fail "'$1' does not run; name another Python, 3.10 or newer: PYTHON=python3.12 bash $0"
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "'$1' is Python $(version_of "$1"), but 3.10 or newer is needed; name one: PYTHON=python3.12 bash $0"
}

make_venv() {
    local base="${PYTHON:-python3}"
    if "$python" -c '' >/dev/null 2>&1; then
        if [ -z "${PYTHON:-}" ]; then
            check_interpreter "$python"
            return
        fi
        check_interpreter "$base"
        [ "$(version_of "$base")" = "$(version_of "$python")" ] && return
        compgen -G "$venv/.installed-*" >/dev/null ||
            fail "$venv holds Python $(version_of "$python") and was not made by this script; remove it or unset PYTHON"
    fi
    check_interpreter "$base"
    echo "making the virtual environment $venv (Python $(version_of "$base"))"
    "$base" -m venv --clear "$venv" ||
        fail "'$base -m venv' failed; on Debian and Ubuntu install the package python3-venv"
}

prepare_environment() {
    local extra="$1" stamp state
    make_venv
    stamp="$venv/.installed-$extra"
    # What the installation depends on: the declared dependencies, the interpreter, and where the project lies.
    state="$(cat "$root/pyproject.toml" && "$python" -VV && echo "$root")"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$state" ] || ! "$python" -m pip show -q tensorcep 2>/dev/null; then
        echo "installing tensorcep[$extra] and what it needs into $venv"
        rm -f "$stamp"
        "$python" -m pip install --quiet --disable-pip-version-check -e "$root[$extra]"
        printf '%s\n' "$state" >"$stamp"
    fi
}
