#include "diskhop/simd/instruction_set.hpp"

namespace diskhop {

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> supported{InstructionSet::portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) supported.push_back(InstructionSet::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    supported.push_back(InstructionSet::avx512);
  }
#endif
  return supported;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = supported_instruction_sets().back();
  return best;
}

}  // namespace diskhop
