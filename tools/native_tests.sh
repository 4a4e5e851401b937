#!/bin/sh
# Build the core and its tests with the sanitizers named by the first argument, and run them.
set -eu
PATH="$PWD/.venv/bin:$PATH"
build=build/native-$(echo "$1" | tr , -)
# The fuzz targets, too, where there are any: ninja builds all at once.
sh tools/native_build.sh "$build" "$1" all
# Prints the seconds of each test.
ctest --test-dir "$build" --output-on-failure --parallel 2
