// Copies rows between one matrix and several that share its columns: tables keep adjacent columns together on disk.
#pragma once

#include <span>

#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// Copies the columns of all parts, one part after the other, to the columns of out; columns beyond out's are left out.
/// With divisors (one per row; may be empty), every value is divided by its row's; a row with the divisor 0 becomes
/// zeros, and the parts may have only the other rows. Runs in up to num_threads threads. Throws std::invalid_argument,
/// before anything is written, for parts with other rows than these or too few columns.
void join_columns(std::span<const Matrix<const float>> parts, std::span<const float> divisors, const Matrix<float>& out,
                  unsigned num_threads, InstructionSet instructions = best_instruction_set());

/// The reverse: copies the columns of rows to those of the parts; columns of parts beyond these stay as they are.
void split_columns(const Matrix<const float>& rows, std::span<const Matrix<float>> parts, unsigned num_threads);

}  // namespace diskhop
