#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/turns.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "embedding/left_out.hpp"
#include "embedding/negative_products.hpp"
#include "embedding/product_kernels.hpp"
#include "nn/layer_products.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Longer sums over negatives are made in runs; see sum_negatives().
constexpr std::size_t most_summed = 4096;
constexpr std::size_t run_summed = 256;
// A block's scores and rows stay in a core's second-level cache from the first product to the third.
constexpr std::size_t block_scores = std::size_t{1} << 17;
constexpr std::size_t least_rows = 16;
constexpr std::size_t most_rows = 256;

// Rows padded to whole cache lines: the library's products of such rows are a tenth faster.
constexpr std::size_t aligned(std::size_t num_floats) {
  return (num_floats + vector_floats - 1) / vector_floats * vector_floats;
}

// to (num_columns, num_rows) = from (num_rows, num_columns), in squares that stay in the first-level cache
void transpose(const float* from, std::size_t from_stride, std::size_t num_rows, std::size_t num_columns, float* to,
               std::size_t to_stride) {
  for (std::size_t row = 0; row < num_rows; row += vector_floats) {
    const std::size_t rows = std::min(vector_floats, num_rows - row);
    for (std::size_t column = 0; column < num_columns; ++column) {
      float* const line = to + column * to_stride + row;
      const float* const values = from + row * from_stride + column;
      for (std::size_t i = 0; i < rows; ++i) line[i] = values[i * from_stride];
    }
  }
}

void require_fit(const ProductBatch& batch) {
  const std::size_t num_edges = batch.num_edges;
  const std::size_t num_drawn = batch.chunk_size == 0 ? 0 : 2 * batch.num_chunks() * batch.num_negatives;
  const std::size_t dim = batch.nodes.num_columns;
  const bool has_relations = batch.score != ProductScore::dot;
  const auto is_dense = [](const auto& matrix) { return matrix.stride == matrix.num_columns; };
  const auto are_below = [](std::span<const std::int64_t> rows, std::size_t num_rows) {
    return std::ranges::all_of(rows, [&](std::int64_t row) { return static_cast<std::uint64_t>(row) < num_rows; });
  };
  bool fits = batch.chunk_size > 0 && batch.num_negatives > 0 && batch.rows.size() == 2 * num_edges + num_drawn &&
              batch.grads.num_rows == batch.rows.size() && batch.grads.num_columns == dim && is_dense(batch.grads) &&
              batch.left_out.nodes.size() == batch.rows.size() && are_below(batch.rows, batch.nodes.num_rows) &&
              (batch.left_out.begins.empty() || batch.left_out.begins.size() == 2 * num_edges) &&
              batch.left_out.ends.size() == batch.left_out.begins.size();
  if (has_relations) {
    fits = fits && batch.relation_rows.size() == 2 * num_edges && batch.relations.num_columns == dim &&
           batch.relation_grads.num_rows == 2 * num_edges && batch.relation_grads.num_columns == dim &&
           is_dense(batch.relation_grads) && are_below(batch.relation_rows, batch.relations.num_rows) &&
           (batch.score != ProductScore::complex || dim % 2 == 0);
  }
  if (!fits) {
    throw std::invalid_argument("product_gradients: rows, negatives, relations and gradients must fit each other");
  }
}

// Sizes of a thread's memory, for embeddings of `dim` values and chunks with `num_negatives` negatives per side.
struct LaneShape {
  LaneShape(std::size_t num_dims, std::size_t num_drawn)
      : dim(num_dims),
        num_negatives(num_drawn),
        stride(aligned(dim)),
        scores_stride(aligned(num_negatives)),
        block_rows(std::clamp(block_scores / num_negatives / least_rows * least_rows, least_rows, most_rows)) {}

  [[nodiscard]] std::size_t num_floats() const {
    return block_rows * (5 * stride + scores_stride + 3) + 2 * num_negatives * stride + 4 * dim * scores_stride;
  }

  std::size_t dim;
  std::size_t num_negatives;
  std::size_t stride;         // between rows of dim values
  std::size_t scores_stride;  // between rows of num_negatives values
  std::size_t block_rows;
};

// Computes the chunks of one batch. Threading: run_chunk() for distinct chunks and lanes from any thread.
class Batch {
 public:
  Batch(const MatrixProducts& products, const ProductBatch& batch, BufferPool& scratch, std::size_t num_lanes,
        InstructionSet instructions)
      : products_(products),
        batch_(batch),
        instructions_(instructions),
        shape_(batch.nodes.num_columns, batch.num_negatives),
        negative_products_(products, shape_.dim, shape_.num_negatives, shape_.stride, shape_.scores_stride),
        memory_(scratch, num_lanes * shape_.num_floats() * sizeof(float)),
        losses_(batch.num_chunks()) {
    for (std::size_t chunk = 0; chunk < batch.num_chunks(); ++chunk) {
      for (const std::size_t side : {0, 1}) left_out_.push_back(left_out_of(chunk, side));
    }
  }

  void run_chunk(std::size_t chunk, std::size_t lane) {
    const OneThread one(products_);
    const Memory memory = memory_of(lane);
    const std::size_t first = chunk * batch_.chunk_size;
    const std::size_t end = std::min(first + batch_.chunk_size, batch_.num_edges);
    for (const std::size_t side : {0, 1}) {
      const std::int64_t* const rows = batch_.rows.data() + first_negative(chunk, side);
      run_with(instructions_, GatherRows{batch_.nodes, rows, memory.negatives[side], shape_.stride},
               batch_.num_negatives);
      transpose(memory.negatives[side], shape_.stride, batch_.num_negatives, shape_.dim, memory.negatives_t[side],
                shape_.scores_stride);
    }
    double loss = 0;
    for (std::size_t begin = first; begin < end; begin += shape_.block_rows) {
      const std::size_t num_rows = std::min(shape_.block_rows, end - begin);
      for (const std::size_t end_number : {0, 1}) {
        const std::size_t place = end_number * batch_.num_edges + begin;
        float* const values = memory.ends[end_number];
        run_with(instructions_, GatherRows{batch_.nodes, batch_.rows.data() + place, values, shape_.stride}, num_rows);
        with_instructions(instructions_, [&](auto set) {
          set.run(BeginGrads<set.lanes>{values, shape_.stride, shape_.dim, batch_.l2, batch_.n3,
                                        batch_.grads.data + place * shape_.dim},
                  num_rows);
        });
      }
      for (const std::size_t side : {0, 1}) loss += run_side(side, chunk, begin, num_rows, memory);
    }
    for (const std::size_t side : {0, 1}) {
      transpose(memory.negative_grads_t[side], shape_.scores_stride, shape_.dim, batch_.num_negatives,
                batch_.grads.data + first_negative(chunk, side) * shape_.dim, shape_.dim);
    }
    losses_[chunk] = loss;
  }

  [[nodiscard]] double loss() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

 private:
  /// Memory of one thread. Rows of dim values and rows of scores begin with a cache line.
  struct Memory {
    std::array<float*, 2> ends;              // (block_rows, dim): sources, destinations
    float* queries;                          // (block_rows, dim)
    float* query_grads;                      // (block_rows, dim)
    float* part_grads;                       // (block_rows, dim), summed over a run of negatives
    float* scores;                           // (block_rows, num_negatives)
    std::array<float*, 2> negatives;         // (num_negatives, dim): for destinations, for sources
    std::array<float*, 2> negatives_t;       // (dim, num_negatives)
    std::array<float*, 2> negative_grads_t;  // (dim, num_negatives)
    float* positives;                        // (block_rows)
    float* positive_grads;                   // (block_rows)
    float* losses;                           // (block_rows)
  };

  [[nodiscard]] Memory memory_of(std::size_t lane) const {
    float* next = reinterpret_cast<float*>(memory_.data()) + lane * shape_.num_floats();
    const auto take = [&](std::size_t count) { return std::exchange(next, next + count); };
    const std::size_t rows = shape_.block_rows * shape_.stride;
    const std::size_t drawn = batch_.num_negatives * shape_.stride;
    const std::size_t transposed = shape_.dim * shape_.scores_stride;
    return {.ends = {take(rows), take(rows)},
            .queries = take(rows),
            .query_grads = take(rows),
            .part_grads = take(rows),
            .scores = take(shape_.block_rows * shape_.scores_stride),
            .negatives = {take(drawn), take(drawn)},
            .negatives_t = {take(transposed), take(transposed)},
            .negative_grads_t = {take(transposed), take(transposed)},
            .positives = take(shape_.block_rows),
            .positive_grads = take(shape_.block_rows),
            .losses = take(shape_.block_rows)};
  }

  [[nodiscard]] std::size_t first_negative(std::size_t chunk, std::size_t side) const {
    return 2 * batch_.num_edges + (side * batch_.num_chunks() + chunk) * batch_.num_negatives;
  }

  [[nodiscard]] LeftOutColumns left_out_of(std::size_t chunk, std::size_t side) const {
    const LeftOutNodes& all = batch_.left_out;
    const std::size_t first = chunk * batch_.chunk_size;
    const std::size_t count = std::min(batch_.chunk_size, batch_.num_edges - first);
    LeftOut of_chunk{.answers = all.nodes.subspan((1 - side) * batch_.num_edges + first, count),
                     .negatives = all.nodes.subspan(first_negative(chunk, side), batch_.num_negatives),
                     .known = all.known[side],
                     .begins = {},
                     .ends = {}};
    if (!all.begins.empty()) {
      of_chunk.begins = all.begins.subspan(side * batch_.num_edges + first, count);
      of_chunk.ends = all.ends.subspan(side * batch_.num_edges + first, count);
    }
    return {of_chunk, count, batch_.num_negatives};
  }

  /// query_grads = the gradients of the scores times the negatives. Long sums are made in runs: a library adds one
  /// product after the other, and with similar values every rounding would go the same way.
  void sum_negatives(const Memory& memory, const float* negatives, std::size_t num_rows) const {
    const std::size_t run = batch_.num_negatives > most_summed ? run_summed : batch_.num_negatives;
    negative_products_.query_grads(memory.scores, negatives, num_rows, 0, run, memory.query_grads);
    for (std::size_t first = run; first < batch_.num_negatives; first += run) {
      const std::size_t count = std::min(run, batch_.num_negatives - first);
      negative_products_.query_grads(memory.scores, negatives, num_rows, first, count, memory.part_grads);
      for (std::size_t i = 0; i < num_rows * shape_.stride; ++i) memory.query_grads[i] += memory.part_grads[i];
    }
  }

  /// Runs one side of a block: 0 corrupts destinations, 1 sources. Returns the sum of the losses.
  double run_side(std::size_t number, std::size_t chunk, std::size_t begin, std::size_t num_rows,
                  const Memory& memory) {
    const std::size_t num_negatives = batch_.num_negatives;
    const std::size_t first_edge = begin - chunk * batch_.chunk_size;
    const std::size_t anchor_row = number * batch_.num_edges + begin;
    const std::size_t answer_row = (1 - number) * batch_.num_edges + begin;
    const bool has_relations = batch_.score != ProductScore::dot;
    const Side side{.score = batch_.score,
                    .is_tail = number == 0 || batch_.is_reciprocal,
                    .dim = shape_.dim,
                    .stride = shape_.stride,
                    .relations = batch_.relations,
                    .relation_rows = has_relations ? batch_.relation_rows.data() + anchor_row : nullptr,
                    .anchors = memory.ends[number],
                    .answers = memory.ends[1 - number]};
    if (has_relations) {
      with_instructions(instructions_,
                        [&](auto set) { set.run(MakeQueries<set.lanes>{side, memory.queries}, num_rows); });
    }
    const float* const queries = has_relations ? memory.queries : side.anchors;

    negative_products_.scores(queries, memory.negatives_t[number], num_rows, memory.scores);
    const Matrix<float> scores{memory.scores, num_rows, num_negatives, shape_.scores_stride};
    left_out_[2 * chunk + number].mask(first_edge, scores);
    with_instructions(instructions_, [&](auto set) {
      set.run(PairProducts<set.lanes>{queries, side.answers, shape_.dim, shape_.stride, memory.positives}, num_rows);
    });
    contrastive_softmax(scores, {memory.positives, num_rows}, {memory.positive_grads, num_rows},
                        {memory.losses, num_rows}, batch_.with_positive, 1, instructions_);
    sum_negatives(memory, memory.negatives[number], num_rows);
    negative_products_.negative_grads_t(memory.scores, queries, num_rows, first_edge == 0 ? 0.0F : 1.0F,
                                        memory.negative_grads_t[number]);
    with_instructions(instructions_, [&](auto set) {
      set.run(
          EndGrads<set.lanes>{side, queries, memory.positive_grads, batch_.n3, memory.query_grads,
                              batch_.grads.data + anchor_row * shape_.dim, batch_.grads.data + answer_row * shape_.dim,
                              has_relations ? batch_.relation_grads.data + anchor_row * shape_.dim : nullptr},
          num_rows);
    });
    return std::accumulate(memory.losses, memory.losses + num_rows, 0.0);
  }

  const MatrixProducts& products_;
  const ProductBatch& batch_;
  InstructionSet instructions_;
  LaneShape shape_;
  NegativeProducts negative_products_;
  PooledBuffer memory_;
  std::vector<double> losses_;
  std::vector<LeftOutColumns> left_out_;
};

}  // namespace

void mask_scores(const LeftOut& left_out, const Matrix<float>& scores) {
  LeftOutColumns(left_out, scores.num_rows, scores.num_columns).mask(0, scores);
}

std::size_t product_scratch_bytes(std::size_t dim, std::size_t num_negatives, std::size_t num_threads) {
  const LaneShape shape(dim, std::max<std::size_t>(1, num_negatives));
  return Buffer::mapped_bytes(num_threads * shape.num_floats() * sizeof(float));
}

double product_gradients(const MatrixProducts& products, const ProductBatch& batch, BufferPool& scratch,
                         unsigned num_threads, InstructionSet instructions) {
  require_fit(batch);
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(1, batch.num_chunks()));
  Batch run(products, batch, scratch, num_lanes, instructions);
  share_turns(batch.num_chunks(), num_lanes, [&](std::size_t chunk, std::size_t lane) { run.run_chunk(chunk, lane); });
  return run.loss();
}

}  // namespace diskhop
