// One source for every instruction set: a task is inlined into a function for each, and the best is called.
#pragma once

#include <cstddef>

#include "diskhop/aggregate.hpp"

namespace diskhop {

/// Calls task(arguments...), compiled for `instructions`. Its operator() and what that calls must be always_inline.
template <typename Task, typename... Arguments>
struct Compiled {
  static void portable(const Task& task, Arguments... arguments) { task(arguments...); }
#if defined(__x86_64__)
  [[gnu::target("avx2")]] static void avx2(const Task& task, Arguments... arguments) { task(arguments...); }
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void avx512(const Task& task, Arguments... arguments) {
    task(arguments...);
  }
#endif
};

template <typename Task, typename... Arguments>
void run_with(InstructionSet instructions, const Task& task, Arguments... arguments) {
  using Versions = Compiled<Task, Arguments...>;
#if defined(__x86_64__)
  if (instructions == InstructionSet::avx512) return Versions::avx512(task, arguments...);
  if (instructions == InstructionSet::avx2) return Versions::avx2(task, arguments...);
#endif
  static_cast<void>(instructions);
  Versions::portable(task, arguments...);
}

}  // namespace diskhop
