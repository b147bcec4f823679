#!/bin/sh
# Makes a virtual environment with exactly the pinned packages: venv.sh PYTHON DIRECTORY
set -eu
python=$1 venv=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "torchctl needs Python 3.11 or later; $python is $("$python" --version). Name another: make PYTHON=..." >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian ships the venv module without ensurepip; the package is named after the version.
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ]; then
        echo "$python lacks ensurepip: install the package $package (as root: apt-get install $package)" >&2
        exit 1
    fi
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"
fi
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --require-hashes --requirement requirements-dev.txt
"$venv/bin/pip" install --quiet --no-deps --no-build-isolation --editable .
