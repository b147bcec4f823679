#!/bin/sh
# Pins the development dependencies, for every Python that the project supports, with hashes and without addresses.
set -eu
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet uv
"$tools/bin/uv" pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-header --quiet --output-file requirements-dev.txt
