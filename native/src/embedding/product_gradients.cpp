#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "simd/instruction_sets.hpp"
#include "nn/layer_products.hpp"
#include "embedding/left_out.hpp"
#include "embedding/negative_products.hpp"
#include "base/turns.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Scores of a block stay in a core's second cache from the first product to the third, and so do its rows.
constexpr std::size_t most_summed = 4096;
constexpr std::size_t run_summed = 256;
constexpr std::size_t block_scores = std::size_t{1} << 17;
constexpr std::size_t least_rows = 16;
constexpr std::size_t most_rows = 256;
constexpr std::size_t rows_ahead = 8;  // that are prefetched

// What threads have for themselves: used again from call to call.
PooledBuffer take_scratch(std::size_t num_floats) {
  static BufferPool pool(std::size_t{64} << 20);
  return {pool, num_floats * sizeof(float)};
}

// Rows of so many floats begin with a line of the cache: the library's products of such are a tenth faster.
constexpr std::size_t aligned(std::size_t num_floats) {
  return (num_floats + vector_floats - 1) / vector_floats * vector_floats;
}

// to (num_columns, num_rows) = from (num_rows, num_columns), in squares that stay in the first cache
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

template <std::size_t lanes>
using Lanes = std::integral_constant<std::size_t, lanes>;

template <std::size_t lanes, typename Visit>
[[gnu::always_inline]] inline void for_rest(std::size_t first, std::size_t size, const Visit& visit) {
  if (size - first >= lanes) {
    visit(first, Lanes<lanes>{});
    first += lanes;
  }
  if constexpr (lanes > 1) for_rest<lanes / 2>(first, size, visit);
}

// visit(first, lanes): a vector's values at a time, then by shorter ones. One that is filled up in memory would wait
// for that to be written.
template <typename Visit>
[[gnu::always_inline]] inline void for_vectors(std::size_t size, const Visit& visit) {
  std::size_t first = 0;
  for (; first + vector_floats <= size; first += vector_floats) visit(first, Lanes<vector_floats>{});
  for_rest<vector_floats / 2>(first, size, visit);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void load_whole(const float* from, Register<lanes>& values) {
  load_register<lanes>(from, lanes, values);
}
template <std::size_t lanes>
[[gnu::always_inline]] inline void store_whole(float* to, const Register<lanes>& values) {
  store_register<lanes>(to, lanes, values);
}
template <std::size_t lanes>
[[gnu::always_inline]] inline void add(float* to, const Register<lanes>& more) {
  Register<lanes> values;
  load_whole<lanes>(to, values);
  store_whole<lanes>(to, values + more);
}

// values *= l2 + n3 * |values|
template <std::size_t lanes>
[[gnu::always_inline]] inline void times_weights(float l2, float n3, Register<lanes>& values) {
  RegisterWords<lanes> words;
  std::memcpy(&words, &values, sizeof words);
  words &= 0x7fffffff;
  Register<lanes> magnitudes;
  std::memcpy(&magnitudes, &words, sizeof magnitudes);
  values *= magnitudes * n3 + l2;
}

// to = rows of a table
struct GatherRows {
  const Matrix<const float>& table;
  const std::int64_t* rows;
  float* to;
  std::size_t stride;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    const std::size_t dim = table.num_columns;
    for (std::size_t row = 0; row < num_rows; ++row) {
      if (row + rows_ahead < num_rows) {
        const float* const next = row_of(row + rows_ahead);
        for (std::size_t column = 0; column < dim; column += vector_floats) __builtin_prefetch(next + column);
        __builtin_prefetch(next + dim - 1);
      }
      std::memcpy(to + row * stride, row_of(row), dim * sizeof(float));
    }
  }

  [[nodiscard, gnu::always_inline]] const float* row_of(std::size_t row) const {
    return table.data + static_cast<std::size_t>(rows[row]) * table.stride;
  }
};

// grads = those of l2 * x^2 / 2 + n3 * |x|^3 / 3
struct BeginGrads {
  const float* values;
  std::size_t stride;
  std::size_t dim;
  float l2;
  float n3;
  float* grads;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for_vectors(dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
        using Values = Register<lanes()>;
        Values value;
        load_whole<lanes()>(values + row * stride + first, value);
        times_weights<lanes()>(l2, n3, value);
        store_whole<lanes()>(grads + row * dim + first, value);
      });
    }
  }
};

// One side of a block: its ends that are not corrupted, and those that are wanted.
struct Side {
  ProductScore score;
  bool is_tail;  // destinations are wanted, or relations have an embedding for either direction
  std::size_t dim;
  std::size_t stride;  // of asked, wanted, queries and their gradients
  Matrix<const float> relations;
  const std::int64_t* relation_rows;
  const float* asked;
  const float* wanted;

  // Of a relation's imaginary part: destinations are multiplied by its conjugate.
  [[nodiscard, gnu::always_inline]] float turn() const { return is_tail ? 1.0F : -1.0F; }
  [[nodiscard, gnu::always_inline]] const float* relation(std::size_t row) const {
    return relations.data + static_cast<std::size_t>(relation_rows[row]) * relations.stride;
  }
};

// queries = asked, times relations
struct MakeQueries {
  const Side& side;
  float* queries;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      const float* const asked = side.asked + row * side.stride;
      if (side.score == ProductScore::distmult) {
        times(asked, side.relation(row), queries + row * side.stride);
      } else {
        times_complex(asked, side.relation(row), queries + row * side.stride);
      }
    }
  }

  [[gnu::always_inline]] void times(const float* asked, const float* by, float* query) const {
    for_vectors(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      Values values;
      Values factors;
      load_whole<lanes()>(asked + first, values);
      load_whole<lanes()>(by + first, factors);
      store_whole<lanes()>(query + first, values * factors);
    });
  }

  [[gnu::always_inline]] void times_complex(const float* asked, const float* by, float* query) const {
    const std::size_t half = side.dim / 2;
    for_vectors(half, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      Values real;
      Values imaginary;
      Values by_real;
      Values by_imaginary;
      load_whole<lanes()>(asked + first, real);
      load_whole<lanes()>(asked + half + first, imaginary);
      load_whole<lanes()>(by + first, by_real);
      load_whole<lanes()>(by + half + first, by_imaginary);
      by_imaginary *= side.turn();
      store_whole<lanes()>(query + first, real * by_real - imaginary * by_imaginary);
      store_whole<lanes()>(query + half + first, real * by_imaginary + imaginary * by_real);
    });
  }
};

// positives = queries . wanted
struct PairProducts {
  const float* queries;
  const float* wanted;
  std::size_t dim;
  std::size_t stride;
  float* positives;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      Floats sums{};
      for (std::size_t first = 0; first < dim; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, dim - first);
        Floats query;
        Floats node;
        load(queries + row * stride + first, count, query);
        load(wanted + row * stride + first, count, node);
        sums += query * node;
      }
      positives[row] = sum_of(sums);
    }
  }
};

// Of query_grads those by the pairs, too; then what all of that is for the ends and the relations.
struct EndGrads {
  const Side& side;
  const float* queries;
  const float* pair_grads;
  float n3;
  float* query_grads;
  float* asked_grads;     // added to
  float* wanted_grads;    // added to
  float* relation_grads;  // filled

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      of_pair(row);
      if (side.score == ProductScore::distmult) through_factors(row);
      if (side.score == ProductScore::complex) through_complex_factors(row);
    }
  }

  [[gnu::always_inline]] void of_pair(std::size_t row) const {
    const std::size_t begin = row * side.stride;
    const std::size_t begin_of_grads = row * side.dim;
    for_vectors(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = begin + first;
      Values query;
      Values node;
      Values of_query;
      load_whole<lanes()>(queries + place, query);
      load_whole<lanes()>(side.wanted + place, node);
      load_whole<lanes()>(query_grads + place, of_query);
      of_query += pair_grads[row] * node;
      add<lanes()>(wanted_grads + begin_of_grads + first, pair_grads[row] * query);
      if (side.score == ProductScore::dot) {
        add<lanes()>(asked_grads + begin_of_grads + first, of_query);
      } else {
        store_whole<lanes()>(query_grads + place, of_query);
      }
    });
  }

  [[gnu::always_inline]] void through_factors(std::size_t row) const {
    const float* const by = side.relation(row);
    for_vectors(side.dim, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = row * side.stride + first;
      const std::size_t of_grads = row * side.dim + first;
      Values of_query;
      Values asked;
      Values relation;
      load_whole<lanes()>(query_grads + place, of_query);
      load_whole<lanes()>(side.asked + place, asked);
      load_whole<lanes()>(by + first, relation);
      add<lanes()>(asked_grads + of_grads, of_query * relation);
      times_weights<lanes()>(0, n3, relation);
      store_whole<lanes()>(relation_grads + of_grads, of_query * asked + relation);
    });
  }

  [[gnu::always_inline]] void through_complex_factors(std::size_t row) const {
    const std::size_t half = side.dim / 2;
    const float* const by = side.relation(row);
    for_vectors(half, [&](std::size_t first, auto lanes) __attribute__((always_inline)) {
      using Values = Register<lanes()>;
      const std::size_t place = row * side.stride + first;
      const std::size_t of_grads = row * side.dim + first;
      Values of_real;
      Values of_imaginary;
      Values real;
      Values imaginary;
      Values by_real;
      Values by_imaginary;
      load_whole<lanes()>(query_grads + place, of_real);
      load_whole<lanes()>(query_grads + place + half, of_imaginary);
      load_whole<lanes()>(side.asked + place, real);
      load_whole<lanes()>(side.asked + place + half, imaginary);
      load_whole<lanes()>(by + first, by_real);
      load_whole<lanes()>(by + half + first, by_imaginary);
      const Values turned = by_imaginary * side.turn();
      add<lanes()>(asked_grads + of_grads, of_real * by_real + of_imaginary * turned);
      add<lanes()>(asked_grads + of_grads + half, of_imaginary * by_real - of_real * turned);
      times_weights<lanes()>(0, n3, by_real);
      times_weights<lanes()>(0, n3, by_imaginary);
      store_whole<lanes()>(relation_grads + of_grads, of_real * real + of_imaginary * imaginary + by_real);
      store_whole<lanes()>(relation_grads + of_grads + half,
                           side.turn() * (of_imaginary * real - of_real * imaginary) + by_imaginary);
    });
  }
};

void require_fit(const ProductBatch& batch) {
  const std::size_t num_edges = batch.num_edges;
  const std::size_t num_drawn = batch.chunk_size == 0 ? 0 : 2 * batch.num_chunks() * batch.num_negatives;
  const std::size_t dim = batch.nodes.num_columns;
  const bool has_relations = batch.score != ProductScore::dot;
  const auto lies_together = [](const auto& matrix) { return matrix.stride == matrix.num_columns; };
  const auto are_of = [](std::span<const std::int64_t> rows, std::size_t num_rows) {
    return std::ranges::all_of(rows, [&](std::int64_t row) { return static_cast<std::uint64_t>(row) < num_rows; });
  };
  bool fits = batch.chunk_size > 0 && batch.num_negatives > 0 && batch.rows.size() == 2 * num_edges + num_drawn &&
              batch.grads.num_rows == batch.rows.size() && batch.grads.num_columns == dim &&
              lies_together(batch.grads) && batch.left_out.nodes.size() == batch.rows.size() &&
              are_of(batch.rows, batch.nodes.num_rows) &&
              (batch.left_out.begins.empty() || batch.left_out.begins.size() == 2 * num_edges) &&
              batch.left_out.ends.size() == batch.left_out.begins.size();
  if (has_relations) {
    fits = fits && batch.relation_rows.size() == 2 * num_edges && batch.relations.num_columns == dim &&
           batch.relation_grads.num_rows == 2 * num_edges && batch.relation_grads.num_columns == dim &&
           lies_together(batch.relation_grads) && are_of(batch.relation_rows, batch.relations.num_rows) &&
           (batch.score != ProductScore::complex || dim % 2 == 0);
  }
  if (!fits) {
    throw std::invalid_argument("product_gradients: rows, negatives, relations and gradients must fit each other");
  }
}

class Batch {
 public:
  Batch(const MatrixProducts& products, const ProductBatch& batch, std::size_t num_lanes, InstructionSet instructions)
      : products_(products),
        batch_(batch),
        instructions_(instructions),
        dim_(batch.nodes.num_columns),
        stride_(aligned(dim_)),
        scores_stride_(aligned(batch.num_negatives)),
        products_of_(products, dim_, batch.num_negatives, stride_, scores_stride_),
        block_rows_(std::clamp(block_scores / batch.num_negatives / least_rows * least_rows, least_rows, most_rows)),
        lane_floats_(block_rows_ * (5 * stride_ + scores_stride_ + 3) + 2 * batch.num_negatives * stride_ +
                     4 * dim_ * scores_stride_),
        scratch_(take_scratch(lane_floats_ * num_lanes)),
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
      run_with(instructions_, GatherRows{batch_.nodes, rows, memory.negatives[side], stride_}, batch_.num_negatives);
      transpose(memory.negatives[side], stride_, batch_.num_negatives, dim_, memory.negatives_t[side], scores_stride_);
    }
    double loss = 0;
    for (std::size_t begin = first; begin < end; begin += block_rows_) {
      const std::size_t num_rows = std::min(block_rows_, end - begin);
      for (const std::size_t end_number : {0, 1}) {
        const std::size_t place = end_number * batch_.num_edges + begin;
        float* const values = memory.ends[end_number];
        run_with(instructions_, GatherRows{batch_.nodes, batch_.rows.data() + place, values, stride_}, num_rows);
        run_with(instructions_,
                 BeginGrads{values, stride_, dim_, batch_.l2, batch_.n3, batch_.grads.data + place * dim_}, num_rows);
      }
      for (const std::size_t side : {0, 1}) loss += run_side(side, chunk, begin, num_rows, memory);
    }
    for (const std::size_t side : {0, 1}) {
      transpose(memory.negative_grads_t[side], scores_stride_, dim_, batch_.num_negatives,
                batch_.grads.data + first_negative(chunk, side) * dim_, dim_);
    }
    losses_[chunk] = loss;
  }

  [[nodiscard]] double loss() const { return std::accumulate(losses_.begin(), losses_.end(), 0.0); }

 private:
  /// A thread's own. Rows of dim values and of scores are aligned.
  struct Memory {
    std::array<float*, 2> ends;              // (block_rows, dim): sources, destinations
    float* queries;                          // (block_rows, dim)
    float* query_grads;                      // (block_rows, dim)
    float* part_grads;                       // (block_rows, dim): of some negatives
    float* scores;                           // (block_rows, num_negatives)
    std::array<float*, 2> negatives;         // (num_negatives, dim): for destinations, for sources
    std::array<float*, 2> negatives_t;       // (dim, num_negatives)
    std::array<float*, 2> negative_grads_t;  // (dim, num_negatives)
    float* positives;                        // (block_rows)
    float* positive_grads;                   // (block_rows)
    float* losses;                           // (block_rows)
  };

  [[nodiscard]] Memory memory_of(std::size_t lane) const {
    float* next = reinterpret_cast<float*>(scratch_.data()) + lane * lane_floats_;
    const auto take = [&](std::size_t count) { return std::exchange(next, next + count); };
    const std::size_t rows = block_rows_ * stride_;
    const std::size_t drawn = batch_.num_negatives * stride_;
    const std::size_t transposed = dim_ * scores_stride_;
    return {.ends = {take(rows), take(rows)},
            .queries = take(rows),
            .query_grads = take(rows),
            .part_grads = take(rows),
            .scores = take(block_rows_ * scores_stride_),
            .negatives = {take(drawn), take(drawn)},
            .negatives_t = {take(transposed), take(transposed)},
            .negative_grads_t = {take(transposed), take(transposed)},
            .positives = take(block_rows_),
            .positive_grads = take(block_rows_),
            .losses = take(block_rows_)};
  }

  [[nodiscard]] std::size_t first_negative(std::size_t chunk, std::size_t side) const {
    return 2 * batch_.num_edges + (side * batch_.num_chunks() + chunk) * batch_.num_negatives;
  }

  [[nodiscard]] LeftOutColumns left_out_of(std::size_t chunk, std::size_t side) const {
    const LeftOutNodes& all = batch_.left_out;
    const std::size_t first = chunk * batch_.chunk_size;
    const std::size_t count = std::min(batch_.chunk_size, batch_.num_edges - first);
    LeftOut of_chunk{.wanted = all.nodes.subspan((1 - side) * batch_.num_edges + first, count),
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

  /// Gradients of queries: their grads of scores times negatives. Of very many these are summed in runs: libraries add
  /// one to all before it, and values that are alike then round to the same side.
  void sum_negatives(const Memory& memory, const float* negatives, std::size_t num_rows) const {
    const std::size_t run = batch_.num_negatives > most_summed ? run_summed : batch_.num_negatives;
    products_of_.query_grads(memory.scores, negatives, num_rows, 0, run, memory.query_grads);
    for (std::size_t first = run; first < batch_.num_negatives; first += run) {
      const std::size_t count = std::min(run, batch_.num_negatives - first);
      products_of_.query_grads(memory.scores, negatives, num_rows, first, count, memory.part_grads);
      for (std::size_t i = 0; i < num_rows * stride_; ++i) memory.query_grads[i] += memory.part_grads[i];
    }
  }

  /// The block's edges at a side, whose other end is what is asked from. Returns the sum of the losses.
  double run_side(std::size_t number, std::size_t chunk, std::size_t begin, std::size_t num_rows,
                  const Memory& memory) {
    const std::size_t num_negatives = batch_.num_negatives;
    const std::size_t first_edge = begin - chunk * batch_.chunk_size;
    const std::size_t asked_place = number * batch_.num_edges + begin;
    const std::size_t wanted_place = (1 - number) * batch_.num_edges + begin;
    const bool has_relations = batch_.score != ProductScore::dot;
    const Side side{.score = batch_.score,
                    .is_tail = number == 0 || batch_.is_reciprocal,
                    .dim = dim_,
                    .stride = stride_,
                    .relations = batch_.relations,
                    .relation_rows = has_relations ? batch_.relation_rows.data() + asked_place : nullptr,
                    .asked = memory.ends[number],
                    .wanted = memory.ends[1 - number]};
    if (has_relations) run_with(instructions_, MakeQueries{side, memory.queries}, num_rows);
    const float* const queries = has_relations ? memory.queries : side.asked;

    products_of_.scores(queries, memory.negatives_t[number], num_rows, memory.scores);
    const Matrix<float> scores{memory.scores, num_rows, num_negatives, scores_stride_};
    left_out_[2 * chunk + number].mask(first_edge, scores);
    run_with(instructions_, PairProducts{queries, side.wanted, dim_, stride_, memory.positives}, num_rows);
    contrastive_softmax(scores, {memory.positives, num_rows}, {memory.positive_grads, num_rows},
                        {memory.losses, num_rows}, batch_.with_positive, 1, instructions_);
    sum_negatives(memory, memory.negatives[number], num_rows);
    products_of_.negative_grads_t(memory.scores, queries, num_rows, first_edge == 0 ? 0.0F : 1.0F,
                                  memory.negative_grads_t[number]);
    run_with(instructions_,
             EndGrads{side, queries, memory.positive_grads, batch_.n3, memory.query_grads,
                      batch_.grads.data + asked_place * dim_, batch_.grads.data + wanted_place * dim_,
                      has_relations ? batch_.relation_grads.data + asked_place * dim_ : nullptr},
             num_rows);
    return std::accumulate(memory.losses, memory.losses + num_rows, 0.0);
  }

  const MatrixProducts& products_;
  const ProductBatch& batch_;
  InstructionSet instructions_;
  std::size_t dim_;
  std::size_t stride_;
  std::size_t scores_stride_;
  NegativeProducts products_of_;
  std::size_t block_rows_;
  std::size_t lane_floats_;
  PooledBuffer scratch_;
  std::vector<double> losses_;
  std::vector<LeftOutColumns> left_out_;
};

}  // namespace

void mask_scores(const LeftOut& left_out, const Matrix<float>& scores) {
  LeftOutColumns(left_out, scores.num_rows, scores.num_columns).mask(0, scores);
}

double product_gradients(const MatrixProducts& products, const ProductBatch& batch, unsigned num_threads,
                         InstructionSet instructions) {
  require_fit(batch);
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(1, batch.num_chunks()));
  Batch run(products, batch, num_lanes, instructions);
  share_turns(batch.num_chunks(), num_lanes, [&](std::size_t chunk, std::size_t lane) { run.run_chunk(chunk, lane); });
  return run.loss();
}

}  // namespace diskhop
