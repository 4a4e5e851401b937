#!/bin/sh
# Fuzz every native entry that reads bytes of files, SECONDS each (default 60) or RUNS each, two at a time:
#
#     sh tools/fuzz.sh [SECONDS|RUNSruns] [TARGET ...]
#
# CXX=clang++ uses libFuzzer, g++ our driver (native/fuzz/driver.cpp). What was found to reach new code is kept in the
# build folder, for the next run by time; one by RUNS starts from the repository's inputs alone, so that it is the same
# each time. A finding is written to the build folder, too, and the exit code is not 0.
set -eu
if [ "${1:-}" = --one ]; then
  build=$2 length=$3 name=$4
  kept=$build/corpus/$name limit=-max_total_time=$length
  case $length in
  *runs)
    kept=$build/of-runs/$name limit=-runs=${length%runs}
    rm -rf "$kept"
    ;;
  esac
  mkdir -p "$kept"
  log=$build/$name.log
  if "$build/fuzz_$name" "$limit" -seed="${FUZZ_SEED:-1}" -print_final_stats=1 \
    -artifact_prefix="$build/finding-$name-" "$kept" "native/fuzz/corpus/$name" >"$log" 2>&1; then
    echo "$name: $(grep -E '^(stat::number_of_executed_units|[0-9]+ runs in)' "$log" | tail -1)"
    exit 0
  fi
  tail -n 60 "$log"
  echo "$name: finding; the input is $build/finding-$name-*, the whole log $log"
  exit 1
fi
length=${1:-60}
[ $# -eq 0 ] || shift
build=build/native-address-undefined
[ -z "${CXX:-}" ] || build=build/native-$(basename "$CXX")
sh tools/native_build.sh "$build" address,undefined fuzz
[ $# -gt 0 ] || set -- $(ls native/fuzz/corpus)
printf '%s\n' "$@" | xargs -P "${FUZZ_JOBS:-2}" -I '{}' sh "$0" --one "$build" "$length" '{}'
