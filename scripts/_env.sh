# Sourced by the scripts beside it: finds an interpreter and keeps virtual environments inside the checkout.
# Everything stays under names that git ignores; nothing is read from or written to the home folder.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

# find_python: print the path of the first interpreter that runs and is new enough. PYTHON=… asks for a certain one.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python python3.13 python3.12 python3.11; do
        # A name on PATH may be a version manager's stand-in that cannot run: ask it.
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    say "respool needs Python 3.11 or newer; none was found on PATH (PYTHON=/path/to/python names one)."
    return 1
}

# new_env DIR: an empty virtual environment with a current pip.
new_env() {
    local dir=$1 python
    python=$(find_python)
    rm -rf "$dir"
    # Debian ships venv without ensurepip; then the pip outside puts the first one in.
    if ! "$python" -m venv "$dir" >/dev/null 2>&1; then
        rm -rf "$dir"
        "$python" -m venv --without-pip "$dir"
        "$python" -m pip --python "$dir/bin/python" install --quiet pip
    fi
    # Dependency groups need pip 25.1; Python 3.11 brings 23.
    "$dir/bin/python" -m pip install --quiet --upgrade 'pip>=25.1'
}

# ensure_env DIR PIP_ARGUMENT...: make DIR with these installed, unless it is there and nothing has changed since.
ensure_env() {
    local dir=$1 stamp want
    shift
    stamp=$dir/installed-for
    want=$(printf '%s\n' "$root" "$@" | cat - "$root/pyproject.toml" | cksum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && "$dir/bin/python" -c '' 2>/dev/null; then
        return 0
    fi
    say "Preparing ${dir#"$root"/} (once; it takes a minute or two) ..."
    new_env "$dir"
    (cd "$root" && "$dir/bin/python" -m pip install --quiet "$@")
    printf '%s\n' "$want" >"$stamp"
}
