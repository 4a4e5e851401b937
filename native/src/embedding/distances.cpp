#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/turns.hpp"
#include "diskhop/embedding/embedding.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Queries per turn, compared with the points of one vector; the points are transposed again for each turn.
constexpr std::size_t turn_queries = 256;
// Queries at a time: each loaded point is used this many times.
constexpr std::size_t tile_queries = 4;
// Values of rows that stay in the first-level cache while gradients are summed over them.
constexpr std::size_t block_values = 4096;
// Fewer differences per thread take less time than starting another thread.
constexpr std::size_t min_thread_values = 1 << 17;
constexpr std::size_t line_floats = 16;
constexpr float smallest_normal = 0x1p-126F;

std::size_t parts_of(std::size_t whole, std::size_t part) { return (whole + part - 1) / part; }

void require(bool fits, const char* rule) {
  if (!fits) throw std::invalid_argument(std::string("distance_scores: ") + rule);
}

// Memory of one call, for its threads, tens of KB each: not worth keeping. Each begins with a cache line.
class LaneMemory {
 public:
  LaneMemory(std::size_t num_lanes, std::size_t num_floats)
      : lane_floats_(parts_of(num_floats, line_floats) * line_floats), values_(num_lanes * lane_floats_ + line_floats) {
    const auto begin = reinterpret_cast<std::uintptr_t>(values_.data()) / sizeof(float);
    first_ = values_.data() + parts_of(begin, line_floats) * line_floats - begin;
  }

  [[nodiscard]] float* of(std::size_t lane) const { return first_ + lane * lane_floats_; }

 private:
  std::size_t lane_floats_;
  std::vector<float> values_;
  float* first_;
};

// Computes 1 / sqrt(values) by Newton's method, to a relative error of 2^-21, in a third of the time of root and
// quotient. 0 gives a large number; infinity gives a value that is not finite.
template <std::size_t lanes>
[[gnu::always_inline]] inline void inverse_roots(const Register<lanes>& values, Register<lanes>& roots) {
  // Half the exponent, negated, is a guess with an error of at most 3.5%.
  roots = reinterpret_cast<Register<lanes>>(0x5f3759dfU - (reinterpret_cast<RegisterWords<lanes>>(values) >> 1));
  const Register<lanes> halves = values * 0.5F;
  for (int step = 0; step < 3; ++step) roots *= 1.5F - halves * roots * roots;
}

// -- scores --

template <Distance kind, std::size_t lanes>
struct Scores {
  using Values = Register<lanes>;

  const Matrix<const float>& queries;
  const Matrix<const float>& points;
  const Matrix<float>& scores;

  // Computes the scores of queries [begin, end) for the points of a vector. panel: memory for these, (dim, 16).
  [[gnu::always_inline]] void operator()(std::size_t first_point, std::size_t begin, std::size_t end,
                                         float* panel) const {
    const std::size_t count = std::min(lanes, points.num_rows - first_point);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      // The last point again if there are no more.
      const float* point = points.data + (first_point + std::min(lane, count - 1)) * points.stride;
      for (std::size_t at = 0; at < points.num_columns; ++at) panel[at * lanes + lane] = point[at];
    }
    for (std::size_t query = begin; query < end; query += tile_queries) {
      const float* of_queries[tile_queries];
      for (std::size_t row = 0; row < tile_queries; ++row) {
        of_queries[row] = queries.data + std::min(query + row, end - 1) * queries.stride;
      }
      Values sums[tile_queries]{};
      add(of_queries, panel, sums);
      for (std::size_t row = 0; row < std::min(tile_queries, end - query); ++row) {
        store_register<lanes>(scores.data + (query + row) * scores.stride + first_point, count, 0.0F - sums[row]);
      }
    }
  }

  [[gnu::always_inline]] void add(const float* const* of_queries, const float* panel, Values* sums) const {
    if constexpr (kind == Distance::l1) {
      for (std::size_t at = 0; at < points.num_columns; ++at) {
        Values of_points;
        load_register<lanes>(panel + at * lanes, lanes, of_points);
        for (std::size_t row = 0; row < tile_queries; ++row) {
          Values difference = of_queries[row][at] - of_points;
          difference = reinterpret_cast<Values>(reinterpret_cast<RegisterWords<lanes>>(difference) & 0x7fffffffU);
          sums[row] += difference;
        }
      }
    } else {
      const std::size_t half = points.num_columns / 2;
      for (std::size_t at = 0; at < half; ++at) {
        Values reals;
        Values imaginaries;
        load_register<lanes>(panel + at * lanes, lanes, reals);
        load_register<lanes>(panel + (half + at) * lanes, lanes, imaginaries);
        for (std::size_t row = 0; row < tile_queries; ++row) {
          const Values real = of_queries[row][at] - reals;
          const Values imaginary = of_queries[row][half + at] - imaginaries;
          const Values squares = real * real + imaginary * imaginary;
          Values roots;
          inverse_roots<lanes>(squares, roots);
          sums[row] += squares * roots;
        }
      }
    }
  }
};

// -- gradients --

// A row's gradient is the sum over the others of weight * (other - own) / |other - own|, for queries and points alike:
// per value for l1, per pair for modulus.
template <Distance kind, std::size_t lanes>
struct Gradients {
  using Values = Register<lanes>;
  static constexpr std::size_t parts = kind == Distance::l1 ? 1 : 2;  // of a vector: real and imaginary
  static constexpr std::size_t tile_rows = 4 / parts;

  Matrix<const float> own;
  Matrix<const float> others;
  const float* weights;
  std::size_t own_stride;  // between the weights of two consecutive rows
  std::size_t other_stride;
  Matrix<float> grads;

  [[nodiscard]] static std::size_t width_of(std::size_t dim) { return dim / parts; }
  [[nodiscard]] static std::size_t block_rows_of(std::size_t dim) {
    return std::max<std::size_t>(16, block_values / std::max<std::size_t>(1, dim));
  }
  [[nodiscard]] static std::size_t scratch_floats(std::size_t dim) {
    const std::size_t num_vectors = parts_of(width_of(dim), lanes);
    return (block_rows_of(dim) * tile_rows / lanes + 1 + num_vectors * tile_rows * parts) * lanes;
  }

  // Computes the tile of rows from `first_row` on.
  [[gnu::always_inline]] void operator()(std::size_t first_row, float* scratch) const {
    if (width_of(own.num_columns) >= lanes) {
      run<true>(first_row, scratch);
    } else {
      run<false>(first_row, scratch);
    }
  }

  // is_wide: the last vector of a row reaches back to be whole; the shared columns are computed twice.
  template <bool is_wide>
  [[gnu::always_inline]] void run(std::size_t first_row, float* scratch) const {
    const std::size_t width = width_of(own.num_columns);
    const std::size_t count = is_wide ? lanes : width;
    const std::size_t num_vectors = parts_of(width, lanes);
    const std::size_t num_rows = std::min(tile_rows, own.num_rows - first_row);
    const float* of_own[tile_rows];
    for (std::size_t row = 0; row < tile_rows; ++row) {
      of_own[row] = own.data + (first_row + std::min(row, num_rows - 1)) * own.stride;
    }
    float* const sums = scratch;
    float* const of_block = sums + num_vectors * tile_rows * parts * lanes;
    std::fill(sums, of_block, 0.0F);
    const std::size_t block_rows = block_rows_of(own.num_columns);
    for (std::size_t begin = 0; begin < others.num_rows; begin += block_rows) {
      const std::size_t end = std::min(others.num_rows, begin + block_rows);
      for (std::size_t other = begin; other < end; ++other) {
        for (std::size_t row = 0; row < tile_rows; ++row) {
          const std::size_t of = first_row + std::min(row, num_rows - 1);
          of_block[(other - begin) * tile_rows + row] = weights[of * own_stride + other * other_stride];
        }
      }
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        add(of_own, start_of(vector, width), count, begin, end, of_block, sums + vector * tile_rows * parts * lanes);
      }
    }
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      for (std::size_t row = 0; row < num_rows; ++row) {
        for (std::size_t part = 0; part < parts; ++part) {
          Values sum;
          load_register<lanes>(sums + ((vector * tile_rows + row) * parts + part) * lanes, lanes, sum);
          store_register<lanes>(grads.data + (first_row + row) * grads.stride + part * width + start_of(vector, width),
                                count, sum);
        }
      }
    }
  }

  [[nodiscard, gnu::always_inline]] static std::size_t start_of(std::size_t vector, std::size_t width) {
    return width < lanes ? 0 : std::min(vector * lanes, width - lanes);
  }

  [[gnu::always_inline]] void add(const float* const* of_own, std::size_t first, std::size_t count, std::size_t begin,
                                  std::size_t end, const float* of_block, float* sums) const {
    const std::size_t width = width_of(own.num_columns);
    Values of_rows[tile_rows * parts];
    Values total[tile_rows * parts];
    for (std::size_t at = 0; at < tile_rows * parts; ++at) {
      load_register<lanes>(of_own[at / parts] + at % parts * width + first, count, of_rows[at]);
      load_register<lanes>(sums + at * lanes, lanes, total[at]);
    }
    for (std::size_t other = begin; other < end; ++other) {
      const float* from = others.data + other * others.stride + first;
      const float* of_rows_weights = of_block + (other - begin) * tile_rows;
      Values found[parts];
      for (std::size_t part = 0; part < parts; ++part) load_register<lanes>(from + part * width, count, found[part]);
      for (std::size_t row = 0; row < tile_rows; ++row) {
        const Values weight = Values{} + of_rows_weights[row];
        if constexpr (kind == Distance::l1) {
          // By comparison: a difference may be too small for a float that is not flushed to 0.
          total[row] += (found[0] > of_rows[row] ? weight : Values{}) - (found[0] < of_rows[row] ? weight : Values{});
        } else {
          const Values real = found[0] - of_rows[row * parts];
          const Values imaginary = found[1] - of_rows[row * parts + 1];
          const Values squares = real * real + imaginary * imaginary;
          Values scale;
          inverse_roots<lanes>(squares, scale);
          scale = squares < smallest_normal ? Values{} : scale * weight;
          total[row * parts] += scale * real;
          total[row * parts + 1] += scale * imaginary;
        }
      }
    }
    for (std::size_t at = 0; at < tile_rows * parts; ++at) store_register<lanes>(sums + at * lanes, lanes, total[at]);
  }
};

// -- checks and threads --

void check(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points, std::size_t num_rows,
           std::size_t num_columns) {
  require(queries.num_columns == points.num_columns, "queries and points must have the same number of columns");
  require(kind == Distance::l1 || points.num_columns % 2 == 0, "complex numbers must have two parts");
  require(num_rows == queries.num_rows && num_columns == points.num_rows,
          "scores must have a row for each query and a column for each point");
}

std::size_t useful_threads(unsigned num_threads, const Matrix<const float>& queries,
                           const Matrix<const float>& points) {
  return std::clamp<std::size_t>(num_threads, 1,
                                 1 + queries.num_rows * points.num_rows * points.num_columns / min_thread_values);
}

template <Distance kind, typename Set>
void fill_scores(const Matrix<const float>& queries, const Matrix<const float>& points, const Matrix<float>& scores,
                 unsigned num_threads) {
  constexpr std::size_t lanes = Set::lanes;
  const std::size_t num_lanes = useful_threads(num_threads, queries, points);
  const std::size_t panel_floats = std::max<std::size_t>(1, points.num_columns) * lanes;
  const LaneMemory panels(num_lanes, panel_floats);
  const Scores<kind, lanes> task{queries, points, scores};
  const std::size_t num_blocks = parts_of(queries.num_rows, turn_queries);
  share_turns(num_blocks * parts_of(points.num_rows, lanes), num_lanes, [&](std::size_t turn, std::size_t lane) {
    const std::size_t begin = turn % num_blocks * turn_queries;
    Set::run(task, turn / num_blocks * lanes, begin, std::min(queries.num_rows, begin + turn_queries), panels.of(lane));
  });
}

template <Distance kind, typename Set>
void fill_gradients(const Matrix<const float>& queries, const Matrix<const float>& points,
                    const Matrix<const float>& grads, const Matrix<float>& grad_queries,
                    const Matrix<float>& grad_points, unsigned num_threads) {
  using Task = Gradients<kind, Set::lanes>;
  const std::size_t num_lanes = useful_threads(num_threads, queries, points);
  const LaneMemory memory(num_lanes, Task::scratch_floats(points.num_columns));
  const Task of_queries{queries, points, grads.data, grads.stride, 1, grad_queries};
  const Task of_points{points, queries, grads.data, 1, grads.stride, grad_points};
  const std::size_t query_turns = parts_of(queries.num_rows, Task::tile_rows);
  share_turns(query_turns + parts_of(points.num_rows, Task::tile_rows), num_lanes,
              [&](std::size_t turn, std::size_t lane) {
                const bool is_query = turn < query_turns;
                Set::run(is_query ? of_queries : of_points, (is_query ? turn : turn - query_turns) * Task::tile_rows,
                         memory.of(lane));
              });
}

}  // namespace

void distance_scores(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                     const Matrix<float>& scores, unsigned num_threads, InstructionSet instructions) {
  check(kind, queries, points, scores.num_rows, scores.num_columns);
  with_instructions(instructions, [&](auto set) {
    if (kind == Distance::l1) {
      fill_scores<Distance::l1, decltype(set)>(queries, points, scores, num_threads);
    } else {
      fill_scores<Distance::modulus, decltype(set)>(queries, points, scores, num_threads);
    }
  });
}

void distance_scores_backward(Distance kind, const Matrix<const float>& queries, const Matrix<const float>& points,
                              const Matrix<const float>& grads, const Matrix<float>& grad_queries,
                              const Matrix<float>& grad_points, unsigned num_threads, InstructionSet instructions) {
  check(kind, queries, points, grads.num_rows, grads.num_columns);
  require(grad_queries.num_rows == queries.num_rows && grad_queries.num_columns == queries.num_columns &&
              grad_points.num_rows == points.num_rows && grad_points.num_columns == points.num_columns,
          "gradients must have the sizes of what they are gradients of");
  with_instructions(instructions, [&](auto set) {
    if (kind == Distance::l1) {
      fill_gradients<Distance::l1, decltype(set)>(queries, points, grads, grad_queries, grad_points, num_threads);
    } else {
      fill_gradients<Distance::modulus, decltype(set)>(queries, points, grads, grad_queries, grad_points, num_threads);
    }
  });
}

}  // namespace diskhop
