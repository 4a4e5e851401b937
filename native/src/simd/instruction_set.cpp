#include "diskhop/simd/instruction_set.hpp"

namespace diskhop {
namespace {

bool supports(InstructionSet set) {
#if defined(__x86_64__)
  if (set == InstructionSet::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == InstructionSet::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return set == InstructionSet::portable;
}

}  // namespace

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> supported;
  for (const InstructionSet set : {InstructionSet::portable, InstructionSet::avx2, InstructionSet::avx512}) {
    if (supports(set)) supported.push_back(set);
  }
  return supported;
}

// Allocates nothing: sums of content ask for it, which must not throw.
InstructionSet best_instruction_set() {
  static const InstructionSet best = [] {
    for (const InstructionSet set : {InstructionSet::avx512, InstructionSet::avx2}) {
      if (supports(set)) return set;
    }
    return InstructionSet::portable;
  }();
  return best;
}

}  // namespace diskhop
