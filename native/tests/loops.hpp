// Matrix products as plain loops, which record whether they were limited to one thread.
#pragma once

#include <atomic>
#include <cstddef>

#include "diskhop/nn/linear.hpp"
#include "values.hpp"

namespace diskhop::testing {

inline thread_local int library_threads = 7;
inline std::atomic<int> products_with_more_threads = 0;

template <typename Value>
void loops_gemm(const char* op_a, const char* op_b, const int* num_rows, const int* num_columns, const int* num_terms,
                const float* alpha, const Value* a, const int* lda, const Value* b, const int* ldb, const float* beta,
                float* c, const int* ldc) {
  if (library_threads != 1) ++products_with_more_threads;
  const bool is_a_flipped = *op_a == 'T';
  const bool is_b_flipped = *op_b == 'T';
  for (std::ptrdiff_t column = 0; column < *num_columns; ++column) {
    for (std::ptrdiff_t row = 0; row < *num_rows; ++row) {
      double sum = 0;
      for (std::ptrdiff_t term = 0; term < *num_terms; ++term) {
        sum += read(a[is_a_flipped ? term + row * *lda : row + term * *lda]) *
               read(b[is_b_flipped ? column + term * *ldb : term + column * *ldb]);
      }
      float& to = c[row + column * *ldc];
      const double before = *beta == 0 ? 0.0 : static_cast<double>(*beta) * static_cast<double>(to);
      to = static_cast<float>(static_cast<double>(*alpha) * sum + before);
    }
  }
}

inline int limit_library_threads(int num_threads) {
  const int before = library_threads;
  library_threads = num_threads;
  return before;
}

inline constexpr MatrixProducts loops{
    .of_floats = loops_gemm<float>, .of_bfloat16 = loops_gemm<Bfloat16>, .limit_threads = limit_library_threads};

}  // namespace diskhop::testing
