// What the training of embeddings does besides matrix products: rows updated by Adagrad (Duchi et al., 2011), softmax
// losses over negatives, and scores that are distances.
//
// No result depends on num_threads or on the instruction set: sums are added up in float and in a fixed order. All
// throw std::invalid_argument for sizes that do not fit each other, before anything is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/aggregate.hpp"
#include "diskhop/linear.hpp"

namespace diskhop {

/// lr: the rate of learning. epsilon: what is added to the root that divides it.
struct AdagradStep {
  float lr = 0;
  float epsilon = 0;
};

/// Updates rows of tables by Adagrad, and keeps the memory that takes: 16 bytes for each of the most rows of a call.
/// Threading: any number of callers, who wait for each other.
class RowUpdater {
 public:
  explicit RowUpdater(unsigned num_threads, InstructionSet instructions = best_instruction_set());

  /// For each row that is named, with g the sum of its gradients in the order of their positions:
  ///
  ///   squares += g^2,  values -= lr g / (sqrt(squares) + epsilon)
  ///
  /// element by element where squares is of the size of values; where it has one column, by the mean of the row's g^2.
  /// What has a gradient of 0 stays as it is, whatever epsilon. values: (N, dim), N at most 2^32; rows: (M), M below
  /// 2^32; grads: (M, dim). Throws std::invalid_argument for a row outside the table as well, and std::bad_alloc.
  void update(const Matrix<float>& values, const Matrix<float>& squares, std::span<const std::int64_t> rows,
              const Matrix<const float>& grads, const AdagradStep& step);

 private:
  /// Fills items_ with (row, position), in that order. Throws std::invalid_argument.
  void sort(std::span<const std::int64_t> rows, std::size_t num_rows, std::size_t num_lanes);

  std::size_t num_threads_;
  InstructionSet instructions_;
  std::mutex mutex_;
  std::vector<std::uint64_t> items_;  // row * 2^32 + position
  std::vector<std::uint64_t> spare_;
  std::vector<std::size_t> places_;  // by lane and digit
  std::vector<float> sums_;          // by lane: of a row that is named more than once
};

/// Softmax losses of positives against their negatives (Legend, equation 1):
///
///   loss = log(sum over negatives of exp(score)) - positive score
///
/// the positive itself being in the sum where with_positive says so. scores (rows, k), one row after the other: of the
/// negatives, in their place the gradients of the row's loss; -inf is a negative left out, with a gradient of 0. A row
/// that has no other, and no positive in its sum, has a loss and gradients of 0. positives, positive_grads, losses:
/// (rows). A score that is +inf or not a number gives a loss that is not finite.
void contrastive_softmax(const Matrix<float>& scores, std::span<const float> positives, std::span<float> positive_grads,
                         std::span<float> losses, bool with_positive, unsigned num_threads,
                         InstructionSet instructions = best_instruction_set());

/// Negatives that do not count for an edge: the node wanted, and others that are known to be right; nodes by any
/// numbers.
struct LeftOut {
  std::span<const std::int64_t> wanted;     // (C)
  std::span<const std::int64_t> negatives;  // (K)
  std::span<const std::int64_t> known;      // for edge i, ascending, from begins[i] to ends[i]
  std::span<const std::int64_t> begins;     // (C), or none: nothing else is known
  std::span<const std::int64_t> ends;
};

/// scores (C, K) of negatives that do not count = -inf. Throws std::invalid_argument where sizes do not fit each other.
void mask_scores(const LeftOut& left_out, const Matrix<float>& scores);

/// Edges of a chunk at one of their sides, by queries (C, dim) whose scores are products with the nodes wanted (C, dim)
/// and with negatives (K, dim), at least one; all rows lie together.
struct ProductChunk {
  Matrix<const float> queries;
  Matrix<const float> wanted;
  Matrix<const float> negatives;
  LeftOut left_out;
  Matrix<float> query_grads;     // filled
  Matrix<float> wanted_grads;    // added to
  Matrix<float> negative_grads;  // filled
  std::span<float> losses;       // filled
};

/// contrastive_softmax() of a chunk's scores, without negatives that are left out, and all gradients:
/// block by block of scores that stay in a core's cache. By the calling thread alone. Throws std::invalid_argument
/// where sizes do not fit each other, std::bad_alloc.
void product_softmax(const MatrixProducts& products, const ProductChunk& chunk, bool with_positive,
                     InstructionSet instructions = best_instruction_set());

/// l1: the sum of |q - p|. modulus (RotatE: Sun et al., 2019): the sum of |q - p| over complex numbers, of which a
/// row's first half has the real parts and the second the imaginary ones.
enum class Distance { l1, modulus };

/// scores (C, K) = minus the distance of each query (C, dim) to each point (K, dim).
void distance_scores(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                     const Matrix<float>& scores, unsigned num_threads,
                     InstructionSet instructions = best_instruction_set());

/// Fills grad_queries and grad_points with the gradients of queries and points, given those of the scores (C, K).
/// Where |q - p| is 0, of a modulus below 1e-19, it gives none.
void distance_scores_backward(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                              const Matrix<const float>& grads, const Matrix<float>& grad_queries,
                              const Matrix<float>& grad_points, unsigned num_threads,
                              InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
