// Linear layers over a mini-batch's rows, and their gradients: a library's matrix products, taken in turns.
//
// A library that shares one product out among threads waits for the slowest of them, and where other threads want the
// processor too (sampling, reading ahead) that is one of them nearly always. In turns of a few rows no core waits, and
// what a product left in the caches is rectified there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "diskhop/nn/activation.hpp"
#include "diskhop/nn/aggregate.hpp"

namespace diskhop {

/// BLAS's gemm: c = alpha * op(a) op(b) + beta * c, all by columns.
template <typename Value>
using Gemm = void (*)(const char* op_a, const char* op_b, const int* num_rows, const int* num_columns,
                      const int* num_terms, const float* alpha, const Value* a, const int* lda, const Value* b,
                      const int* ldb, const float* beta, float* c, const int* ldc);

/// One library's products, with sums of float. limit_threads(n): how many threads of its own it uses from now on for
/// the calling thread (0: as many as it likes); returns what that was.
struct MatrixProducts {
  Gemm<float> of_floats = nullptr;
  Gemm<Bfloat16> of_bfloat16 = nullptr;
  int (*limit_threads)(int num_threads) = nullptr;
};

/// MKL's, where torch's library has it and is loaded; nothing elsewhere.
[[nodiscard]] std::optional<MatrixProducts> find_mkl();

/// out = x times the weight's transpose, plus the bias (none given: 0), rectified where `dropout` is given: each turn
/// of 256 rows with the seed dropout.seed + its first row. x: (rows, in_dim); weight: (out_dim, in_dim); bias:
/// (out_dim); all by rows. The same bits by any number of threads. Throws std::invalid_argument where sizes do not fit
/// each other, std::bad_alloc. Value: float or Bfloat16.
template <typename Value>
void linear(const MatrixProducts& products, std::span<const Value> x, std::span<const Value> weight,
            std::span<const Value> bias, std::size_t in_dim, const std::optional<Dropout>& dropout,
            std::span<Value> out, unsigned num_threads);

/// Given the gradient of out, fills that of x (where a weight is given), of the weight and of the bias. left: what
/// linear() left, where it rectified. Otherwise as above.
template <typename Value>
void linear_backward(const MatrixProducts& products, std::span<const Value> grad, std::span<const Value> x,
                     std::span<const Value> weight, std::size_t in_dim, std::span<const Value> left,
                     const std::optional<Dropout>& dropout, std::span<Value> grad_x, std::span<float> grad_weight,
                     std::span<float> grad_bias, unsigned num_threads);

}  // namespace diskhop
