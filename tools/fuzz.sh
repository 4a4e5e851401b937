#!/bin/sh
# Fuzz every native entry that reads bytes of files, SECONDS each (default 60), two at a time:
#
#     sh tools/fuzz.sh [SECONDS] [TARGET ...]
#
# CXX=clang++ uses libFuzzer, g++ our driver (native/fuzz/driver.cpp). Each run starts from the repository's inputs, so
# that the same FUZZ_SEED tries the same ones, as far as time allows. A finding is written to the build folder, and the
# exit code is not 0.
set -eu
if [ "${1:-}" = --one ]; then
  build=$2 seconds=$3 name=$4
  reached=$build/reached/$name
  rm -rf "$reached"
  mkdir -p "$reached"
  log=$build/$name.log
  if "$build/fuzz_$name" "-max_total_time=$seconds" -seed="${FUZZ_SEED:-1}" -print_final_stats=1 \
    -artifact_prefix="$build/finding-$name-" "$reached" "native/fuzz/corpus/$name" >"$log" 2>&1; then
    echo "$name: $(grep -E '^(stat::number_of_executed_units|[0-9]+ runs in)' "$log" | tail -1)"
    exit 0
  fi
  tail -n 60 "$log"
  echo "$name: finding; the input is $build/finding-$name-*, the whole log $log"
  exit 1
fi
seconds=${1:-60}
[ $# -eq 0 ] || shift
build=build/native-address-undefined
[ -z "${CXX:-}" ] || build=build/native-$(basename "$CXX")
sh tools/native_build.sh "$build" address,undefined fuzz
[ $# -gt 0 ] || set -- $(ls native/fuzz/corpus)
printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I '{}' sh "$0" --one "$build" "$seconds" '{}'
