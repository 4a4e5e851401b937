#!/bin/sh
# Install liburing's headers where that is allowed; say what happens where it is not. Never fails: the core builds without.
set -u
if [ -e /usr/include/liburing.h ]; then exit 0; fi
as_root=""
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
if command -v apt-get >/dev/null 2>&1 &&
  { $as_root apt-get install -y -qq liburing-dev || { $as_root apt-get update -qq && $as_root apt-get install -y -qq liburing-dev; }; } >/dev/null 2>&1; then
  echo "setup: installed liburing-dev: the io_uring engine will be built"
else
  echo "setup: liburing-dev is not installed and could not be: building with the threads engine only" \
    "(to have io_uring: sudo apt-get install liburing-dev, then touch CMakeLists.txt and make setup)"
fi
