// Training of embeddings: row updates by Adagrad (Duchi et al., 2011), softmax losses over negatives, and distance
// scores.
//
// No result depends on num_threads or on the instruction set: sums are in float and in a fixed order. All functions
// throw std::invalid_argument for sizes that do not match, before anything is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/nn/linear.hpp"
#include "diskhop/simd/instruction_set.hpp"
#include "diskhop/simd/values.hpp"

namespace diskhop {

/// lr: learning rate. epsilon: added to the square root that divides the step.
struct AdagradStep {
  float lr = 0;
  float epsilon = 0;
};

/// Updates rows of tables by Adagrad. Keeps 16 bytes per row of the largest call. Threading: any number of callers;
/// calls run one after the other.
class RowUpdater {
 public:
  explicit RowUpdater(unsigned num_threads, InstructionSet instructions = best_instruction_set());

  /// Updates each named row, with g the sum of its gradients in the order of their positions:
  ///
  ///   squares += g^2,  values -= lr g / (sqrt(squares) + epsilon)
  ///
  /// This is per element if squares has the size of values. If squares has one column, it uses the mean of the row's
  /// g^2. Values with a gradient of 0 do not change, whatever epsilon is. values: (N, dim), N at most 2^32; rows: (M),
  /// M below 2^32; grads: (M, dim). Throws std::invalid_argument also for a row outside the table, and std::bad_alloc.
  void update(const Matrix<float>& values, const Matrix<float>& squares, std::span<const std::int64_t> rows,
              const Matrix<const float>& grads, const AdagradStep& step);

 private:
  /// Fills items_ with (row, position), sorted. Throws std::invalid_argument.
  void sort(std::span<const std::int64_t> rows, std::size_t num_rows, std::size_t num_lanes);

  std::size_t num_threads_;
  InstructionSet instructions_;
  std::mutex mutex_;
  std::vector<std::uint64_t> items_;  // row * 2^32 + position
  std::vector<std::uint64_t> spare_;
  std::vector<std::size_t> places_;  // by lane and digit
  std::vector<float> sums_;          // by lane: sum for a row with several gradients
};

/// Computes softmax losses of positives against their negatives (Legend, equation 1):
///
///   loss = log(sum over negatives of exp(score)) - positive score
///
/// with_positive: the sum includes the positive's own score. scores (rows, k), contiguous: scores of the negatives,
/// replaced by the gradients of the row's loss. A score of -inf excludes a negative and gets a gradient of 0. A row
/// with an empty sum has a loss and gradients of 0. positives, positive_grads, losses: (rows). A score that is +inf or
/// NaN gives a loss that is not finite.
void contrastive_softmax(const Matrix<float>& scores, std::span<const float> positives, std::span<float> positive_grads,
                         std::span<float> losses, bool with_positive, unsigned num_threads,
                         InstructionSet instructions = best_instruction_set());

/// Negatives that are excluded for an edge: its answer and other known answers. Nodes may have any numbers.
struct LeftOut {
  std::span<const std::int64_t> answers;    // (C): the other end of each edge
  std::span<const std::int64_t> negatives;  // (K)
  std::span<const std::int64_t> known;      // ascending for edge i, from begins[i] to ends[i]
  std::span<const std::int64_t> begins;     // (C), or empty: no other answers are known
  std::span<const std::int64_t> ends;
};

/// Sets scores (C, K) of excluded negatives to -inf. Throws std::invalid_argument if sizes do not match.
void mask_scores(const LeftOut& left_out, const Matrix<float>& scores);

/// Excluded nodes of all chunks of a batch. nodes: one number per row of the batch. known: for destinations and for
/// sources. begins, ends: ranges of known for each edge and side, (2 E), or empty.
struct LeftOutNodes {
  std::span<const std::int64_t> nodes;
  std::array<std::span<const std::int64_t>, 2> known;
  std::span<const std::int64_t> begins;
  std::span<const std::int64_t> ends;
};

/// Scores that are dot products of a query and a node. dot: the query is the source or destination itself. distmult
/// (Yang et al., 2015): times the relation. complex (Trouillon et al., 2016): the same for complex numbers, real parts
/// before imaginary ones; destinations are multiplied by the relation's conjugate.
enum class ProductScore { dot, distmult, complex };

/// A batch of E edges in chunks of chunk_size. Each chunk has K negatives per side.
struct ProductBatch {
  ProductScore score = ProductScore::dot;
  bool with_positive = false;  // see contrastive_softmax()
  bool is_reciprocal = false;  // relations have one embedding per direction
  float l2 = 0;                // weight of x^2 / 2 of ends
  float n3 = 0;
  std::size_t num_edges = 0;
  std::size_t chunk_size = 0;
  std::size_t num_negatives = 0;
  Matrix<const float> nodes;
  Matrix<const float> relations;                // empty for dot
  std::span<const std::int64_t> rows;           // of sources, of destinations, of negatives for destinations by chunks,
                                                // of those for sources
  std::span<const std::int64_t> relation_rows;  // (2 E): for destinations, for sources
  LeftOutNodes left_out;
  Matrix<float> grads;           // (rows, dim), filled
  Matrix<float> relation_grads;  // (relation_rows, dim), filled

  [[nodiscard]] std::size_t num_chunks() const { return (num_edges + chunk_size - 1) / chunk_size; }
};

/// Returns the sum of contrastive_softmax() over all edges and both sides, and fills the gradients. Works in blocks of
/// scores that stay in a core's cache. The bits do not depend on num_threads. scratch: product_scratch_bytes() are
/// taken from it for the length of the call. Throws std::invalid_argument if sizes do not match or a row does not
/// exist, std::bad_alloc.
double product_gradients(const MatrixProducts& products, const ProductBatch& batch, BufferPool& scratch,
                         unsigned num_threads, InstructionSet instructions = best_instruction_set());

/// Bytes that product_gradients() takes from its pool, with `dim` values per embedding and at least 1 negative.
[[nodiscard]] std::size_t product_scratch_bytes(std::size_t dim, std::size_t num_negatives, std::size_t num_threads);

/// l1: the sum of |q - p|. modulus (RotatE: Sun et al., 2019): the sum of |q - p| over complex numbers; the first half
/// of a row are the real parts, the second half the imaginary ones.
enum class Distance { l1, modulus };

/// Fills scores (C, K) with minus the distance of each query (C, dim) to each point (K, dim).
void distance_scores(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                     const Matrix<float>& scores, unsigned num_threads,
                     InstructionSet instructions = best_instruction_set());

/// Fills the gradients of queries and points, given those of the scores (C, K). Where |q - p| is 0 (modulus: below
/// 1e-19) the gradient is 0.
void distance_scores_backward(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                              const Matrix<const float>& grads, const Matrix<float>& grad_queries,
                              const Matrix<float>& grad_points, unsigned num_threads,
                              InstructionSet instructions = best_instruction_set());

}  // namespace diskhop
