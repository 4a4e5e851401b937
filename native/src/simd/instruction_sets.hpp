// One source for every instruction set: a task is compiled into one function per set, chosen at run time.
#pragma once

#include <cstddef>

#include "diskhop/simd/instruction_set.hpp"

namespace diskhop {

/// task(arguments...) in each set. The task's operator() and all that it calls must be always_inline.
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

/// Instruction sets as types. lanes: floats per register. run(): calls task(arguments...), compiled for the set.
struct PortableSet {
  static constexpr std::size_t lanes = 4;
  template <typename Task, typename... Arguments>
  static void run(const Task& task, Arguments... arguments) {
    Compiled<Task, Arguments...>::portable(task, arguments...);
  }
};
#if defined(__x86_64__)
struct Avx2Set {
  static constexpr std::size_t lanes = 8;
  template <typename Task, typename... Arguments>
  static void run(const Task& task, Arguments... arguments) {
    Compiled<Task, Arguments...>::avx2(task, arguments...);
  }
};
struct Avx512Set {
  static constexpr std::size_t lanes = 16;
  template <typename Task, typename... Arguments>
  static void run(const Task& task, Arguments... arguments) {
    Compiled<Task, Arguments...>::avx512(task, arguments...);
  }
};
#endif

/// Calls visit with the type of an instruction set.
template <typename Visit>
void with_instructions(InstructionSet instructions, const Visit& visit) {
#if defined(__x86_64__)
  if (instructions == InstructionSet::avx512) return visit(Avx512Set());
  if (instructions == InstructionSet::avx2) return visit(Avx2Set());
#endif
  static_cast<void>(instructions);
  visit(PortableSet());
}

/// Calls task(arguments...), compiled for `instructions`, of a task that is the same for any number of lanes.
template <typename Task, typename... Arguments>
void run_with(InstructionSet instructions, const Task& task, Arguments... arguments) {
  with_instructions(instructions, [&](auto set) { set.run(task, arguments...); });
}

}  // namespace diskhop
