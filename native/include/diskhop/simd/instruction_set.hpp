// Instruction sets that kernels are compiled for, and which of them this processor has.
#pragma once

#include <vector>

namespace diskhop {

/// Instruction sets that the kernels are compiled for; all give the same bits.
enum class InstructionSet { portable, avx2, avx512 };
[[nodiscard]] std::vector<InstructionSet> supported_instruction_sets();
[[nodiscard]] InstructionSet best_instruction_set();

}  // namespace diskhop
