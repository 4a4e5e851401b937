#!/bin/sh
# Build the core and its tests with the sanitizers named by the first argument, and run them.
set -eu
sanitizers=$1
bin=$PWD/.venv/bin
build=build/native-$(echo "$sanitizers" | tr , -)
PATH="$bin:$PATH"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDISKHOP_PYTHON=OFF -DDISKHOP_TESTS=ON \
  -DDISKHOP_SANITIZE="$sanitizers" >/dev/null
cmake --build "$build"
ctest --test-dir "$build" --output-on-failure
