// Minimal test helper: a failed check prints itself and ends the test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>

namespace diskhop::testing {

inline void check(bool holds, const std::string& claim, std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: does not hold: %s\n", where.file_name(), static_cast<unsigned>(where.line()),
               claim.c_str());
  std::exit(1);
}

template <typename Error, typename Action>
Error check_throws(Action action, const std::string& claim,
                   std::source_location where = std::source_location::current()) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  check(false, claim + " (nothing was thrown)", where);
  std::abort();
}

}  // namespace diskhop::testing
