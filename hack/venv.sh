#!/bin/sh
# Makes a virtual environment with exactly the pinned packages: venv.sh PYTHON DIRECTORY
set -eu
python=$1 venv=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "torchctl needs Python 3.11 or later; $python is $("$python" --version). Name another: make PYTHON=..." >&2
    exit 1
fi
if ! "$python" -m venv "$venv" 2>/dev/null; then
    # Debian ships the venv module without ensurepip.
    apt-get install -y --no-install-recommends python3-venv
    "$python" -m venv "$venv"
fi
"$venv/bin/pip" install --quiet --require-hashes --requirement requirements-dev.txt
"$venv/bin/pip" install --quiet --no-deps --no-build-isolation --editable .
