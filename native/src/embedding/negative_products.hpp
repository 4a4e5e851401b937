// Products of a block's queries and its chunk's negatives. Their longest dimension is that of the negatives. With it
// last, in scores, negatives and their gradients, the library's vectors are full for any dimension of the embeddings.
#pragma once

#include <cstddef>
#include <limits>
#include <stdexcept>

#include "diskhop/nn/linear.hpp"

namespace diskhop {

/// The three products. Names in _t are transposed, (dim, num_negatives). stride: between rows of dim values;
/// wide_stride: between rows of num_negatives values. Threading: any number of callers.
class NegativeProducts {
 public:
  /// Throws std::invalid_argument for sizes above the library's limit.
  NegativeProducts(const MatrixProducts& products, std::size_t dim, std::size_t num_negatives, std::size_t stride,
                   std::size_t wide_stride)
      : gemm_(products.of_floats),
        dim_(static_cast<int>(dim)),
        num_negatives_(static_cast<int>(num_negatives)),
        stride_(static_cast<int>(stride)),
        wide_stride_(static_cast<int>(wide_stride)) {
    constexpr auto most = static_cast<std::size_t>(std::numeric_limits<int>::max());
    if (stride > most || wide_stride > most) {
      throw std::invalid_argument("product_gradients: too many negatives or dimensions for a product");
    }
  }

  /// scores (rows, num_negatives) = queries (rows, dim) negatives_t
  void scores(const float* queries, const float* negatives_t, std::size_t num_rows, float* scores) const {
    const int rows = static_cast<int>(num_rows);
    gemm_("N", "N", &num_negatives_, &rows, &dim_, &one, negatives_t, &wide_stride_, queries, &stride_, &zero, scores,
          &wide_stride_);
  }
  /// query_grads (rows, dim) = score_grads (rows, num_negatives) negatives (num_negatives, dim), for `count` negatives
  /// from `first` on.
  void query_grads(const float* score_grads, const float* negatives, std::size_t num_rows, std::size_t first,
                   std::size_t count, float* query_grads) const {
    const int rows = static_cast<int>(num_rows);
    const int summed = static_cast<int>(count);
    gemm_("N", "N", &dim_, &rows, &summed, &one, negatives + first * static_cast<std::size_t>(stride_), &stride_,
          score_grads + first, &wide_stride_, &zero, query_grads, &stride_);
  }
  /// sums_t = queries^T score_grads + beta sums_t
  void negative_grads_t(const float* score_grads, const float* queries, std::size_t num_rows, float beta,
                        float* sums_t) const {
    const int rows = static_cast<int>(num_rows);
    gemm_("N", "T", &num_negatives_, &dim_, &rows, &one, score_grads, &wide_stride_, queries, &stride_, &beta, sums_t,
          &wide_stride_);
  }

 private:
  static constexpr float one = 1;
  static constexpr float zero = 0;
  Gemm<float> gemm_;
  int dim_;
  int num_negatives_;
  int stride_;
  int wide_stride_;
};

}  // namespace diskhop
