// Row-major matrix products by a column-major library: every row-major matrix is, column-major, its transpose.
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "diskhop/nn/linear.hpp"

namespace diskhop {

/// Limits the library to one thread during its lifetime: more threads would compete with ours and split sums
/// differently.
class OneThread {
 public:
  explicit OneThread(const MatrixProducts& products) : limit_(products.limit_threads), before_(limit_(1)) {}
  ~OneThread() { limit_(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  OneThread(OneThread&&) = delete;
  OneThread& operator=(OneThread&&) = delete;

 private:
  int (*limit_)(int);
  int before_;
};

/// The three products of a linear layer. Threading: any number of callers.
template <typename Value>
class LayerProducts {
 public:
  /// Throws std::invalid_argument for a size of 0, or above the library's limit.
  LayerProducts(const MatrixProducts& products, std::size_t in_dim, std::size_t out_dim)
      : in_dim_(static_cast<int>(in_dim)), out_dim_(static_cast<int>(out_dim)) {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
    if (in_dim == 0 || out_dim == 0 || in_dim > most || out_dim > most) {
      throw std::invalid_argument("linear: rows, weight, bias and gradients must fit each other");
    }
    if constexpr (std::is_same_v<Value, float>) {
      gemm_ = products.of_floats;
    } else {
      gemm_ = products.of_bfloat16;
    }
  }

  /// out (rows, out_dim) = x (rows, in_dim) weight^T + beta out
  void forward(const Value* x, const Value* weight, std::size_t num_rows, float beta, float* out) const {
    const int rows = static_cast<int>(num_rows);
    gemm_("T", "N", &out_dim_, &rows, &in_dim_, &one, weight, &in_dim_, x, &in_dim_, &beta, out, &out_dim_);
  }
  /// grad_x (rows, in_dim) = grad (rows, out_dim) weight
  void of_x(const Value* grad, const Value* weight, std::size_t num_rows, float* grad_x) const {
    const int rows = static_cast<int>(num_rows);
    gemm_("N", "N", &in_dim_, &rows, &out_dim_, &one, weight, &in_dim_, grad, &out_dim_, &zero, grad_x, &in_dim_);
  }
  /// sums (out_dim, in_dim) = grad^T x + beta sums
  void of_weight(const Value* grad, const Value* x, std::size_t num_rows, float beta, float* sums) const {
    const int rows = static_cast<int>(num_rows);
    gemm_("N", "T", &in_dim_, &out_dim_, &rows, &one, x, &in_dim_, grad, &out_dim_, &beta, sums, &in_dim_);
  }

 private:
  static constexpr float one = 1;
  static constexpr float zero = 0;
  Gemm<Value> gemm_;
  int in_dim_;
  int out_dim_;
};

}  // namespace diskhop
