#!/usr/bin/env bash
# Make a virtual environment: make_venv.sh PYTHON DIRECTORY.
# Debian splits ensurepip off its Python; where the module is missing this says what to install,
# and installs it when it may.
set -euo pipefail
python=$1
venv=$2

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    package="python$version-venv"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: $python has no ensurepip; installing $package"
        apt-get install -y -qq "$package" >/dev/null 2>&1 \
            || { apt-get update -qq && apt-get install -y -qq "$package" >/dev/null; }
    else
        echo "setup: $python cannot make virtual environments; install $package" >&2
        exit 1
    fi
fi
"$python" -m venv "$venv"
