// Linear layers over a mini-batch's rows, and their gradients, by a library's matrix products on a few rows at a time.
//
// A library that splits one product among threads waits for the slowest of them. When other threads use the cores too
// (sampling, prefetching), one of them is nearly always slow. With blocks of a few rows (*turns*), each taken by the
// next free thread, no core waits, and a product's result is rectified while it is still in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "diskhop/io/buffer.hpp"
#include "diskhop/nn/activation.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// BLAS's gemm: c = alpha * op(a) op(b) + beta * c, all column-major.
template <typename Value>
using Gemm = void (*)(const char* op_a, const char* op_b, const int* num_rows, const int* num_columns,
                      const int* num_terms, const float* alpha, const Value* a, const int* lda, const Value* b,
                      const int* ldb, const float* beta, float* c, const int* ldc);

/// Products of one library, with sums in float. limit_threads(n): limits the library's threads for the calling thread
/// (0: no limit) and returns the previous limit.
struct MatrixProducts {
  Gemm<float> of_floats = nullptr;
  Gemm<Bfloat16> of_bfloat16 = nullptr;
  int (*limit_threads)(int num_threads) = nullptr;
};

/// Rows of a matrix, each any number of times; none: all of them, in order.
using Places = std::optional<std::span<const std::int64_t>>;

/// Finds MKL in torch's library, if that is loaded and has it.
[[nodiscard]] std::optional<MatrixProducts> find_mkl();

/// Fills out with x times the transposed weight, plus the bias (empty: 0), rectified if `dropout` is given: each turn
/// of 256 rows uses the seed dropout.seed + its first row. x: (rows, in_dim); weight: (out_dim, in_dim); bias:
/// (out_dim); all row-major. scratch: memory for float results before they are rounded, for the length of the call. The
/// bits do not depend on num_threads. Throws std::invalid_argument if sizes do not match, std::bad_alloc. Value: float
/// or Bfloat16. Row: Value, or a 16-bit format for float, to which each turn's rows are widened: the bits are those of
/// widened rows. places: rows of x to take, one for each row of out; by default all of them, in order.
template <typename Value, typename Row = Value>
void linear(const MatrixProducts& products, std::span<const std::type_identity_t<Row>> x, std::span<const Value> weight,
            std::span<const Value> bias, std::size_t in_dim, const std::optional<Dropout>& dropout,
            std::span<Value> out, BufferPool& scratch, unsigned num_threads, const Places& places = {});

/// Fills the gradients of x (if a weight is given), weight and bias, given that of out. left: the output of linear(),
/// if it was rectified. scratch: memory for partial sums. Otherwise as linear(); there is no gradient of x at places.
template <typename Value, typename Row = Value>
void linear_backward(const MatrixProducts& products, std::span<const Value> grad,
                     std::span<const std::type_identity_t<Row>> x, std::span<const Value> weight, std::size_t in_dim,
                     std::span<const Value> left, const std::optional<Dropout>& dropout, std::span<Value> grad_x,
                     std::span<float> grad_weight, std::span<float> grad_bias, BufferPool& scratch,
                     unsigned num_threads, const Places& places = {});

}  // namespace diskhop
