#!/bin/sh
# Build the core and its tests with the sanitizers named by the first argument, and run them.
set -eu
sanitizers=$1
bin=$PWD/.venv/bin
build=build/native-$(echo "$sanitizers" | tr , -)
PATH="$bin:$PATH"
launcher=$(command -v ccache || true)
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDISKHOP_PYTHON=OFF -DDISKHOP_TESTS=ON \
  -DDISKHOP_SANITIZE="$sanitizers" -DCMAKE_CXX_COMPILER_LAUNCHER="$launcher" >/dev/null
cmake --build "$build"
# Prints the seconds of each test.
ctest --test-dir "$build" --output-on-failure --parallel 2
