#!/bin/sh
# Configure and build TARGET of the core in the folder BUILD, with the sanitizers named by SANITIZERS:
#
#     sh tools/native_build.sh BUILD SANITIZERS TARGET
#
# The folder holds the core's tests, and its fuzz targets where the sanitizers are theirs, so that one build of the core
# serves both. It is configured the same way whoever comes first.
set -eu
build=$1 sanitizers=$2 target=$3
PATH="$PWD/.venv/bin:$PATH"
fuzz=OFF
[ "$sanitizers" != address,undefined ] || fuzz=ON
# The compiler is CXX of the environment: named as an option, another one would clear the folder's options.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDISKHOP_PYTHON=OFF -DDISKHOP_TESTS=ON \
  -DDISKHOP_FUZZ=$fuzz -DDISKHOP_SANITIZE="$sanitizers" -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
  >/dev/null
cmake --build "$build" --target "$target"
