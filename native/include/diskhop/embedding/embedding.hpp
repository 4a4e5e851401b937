// What the training of embeddings does besides matrix products: rows updated by Adagrad (Duchi et al., 2011), softmax
// losses over negatives, and scores that are distances.
//
// No result depends on num_threads or on the instruction set: sums are added up in float and in a fixed order. All
// throw std::invalid_argument for sizes that do not fit each other, before anything is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/nn/aggregate.hpp"
#include "diskhop/nn/linear.hpp"

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

/// LeftOut of a batch's chunks. nodes: a number for each of its rows. For destinations and for sources: known nodes,
/// and for each edge from where to where, (2 E) or none.
struct LeftOutNodes {
  std::span<const std::int64_t> nodes;
  std::array<std::span<const std::int64_t>, 2> known;
  std::span<const std::int64_t> begins;
  std::span<const std::int64_t> ends;
};

/// Scores that are products of a query with a node: dot, the source or the destination itself; distmult (Yang et al.,
/// 2015), times the relation; complex (Trouillon et al., 2016), so for complex numbers, real parts before imaginary
/// ones, of the destination times its conjugate.
enum class ProductScore { dot, distmult, complex };

/// A batch of E edges in chunks of chunk_size, of which each has negatives of its own, K at each side.
struct ProductBatch {
  ProductScore score = ProductScore::dot;
  bool with_positive = false;  // see contrastive_softmax()
  bool is_reciprocal = false;  // relations have an embedding for each direction
  float l2 = 0;                // weights of x^2 / 2 and |x|^3 / 3 of ends and, the latter, of relations
  float n3 = 0;
  std::size_t num_edges = 0;
  std::size_t chunk_size = 0;
  std::size_t num_negatives = 0;
  Matrix<const float> nodes;
  Matrix<const float> relations;                // none for dot
  std::span<const std::int64_t> rows;           // of sources, of destinations, of negatives for destinations by chunks,
                                                // of those for sources
  std::span<const std::int64_t> relation_rows;  // (2 E): for destinations, for sources
  LeftOutNodes left_out;
  Matrix<float> grads;           // filled, of rows
  Matrix<float> relation_grads;  // filled, of relation_rows

  [[nodiscard]] std::size_t num_chunks() const { return (num_edges + chunk_size - 1) / chunk_size; }
};

/// The sum of contrastive_softmax() of all edges at both sides, and its gradients: block by block of scores, which stay
/// in a core's cache. The same bits by any number of threads. Throws std::invalid_argument where sizes do not fit each
/// other or a row is not there, std::bad_alloc.
double product_gradients(const MatrixProducts& products, const ProductBatch& batch, unsigned num_threads,
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
