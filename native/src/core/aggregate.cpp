#include "diskhop/aggregate.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

#include "instruction_sets.hpp"
#include "turns.hpp"
#include "vectors.hpp"

namespace diskhop {
namespace {

// Rows asked for ahead of their turn; between 12 and 40 it makes no difference.
constexpr std::size_t edges_ahead = 16;

constexpr std::size_t line_bytes = 64;
// Threads take turns of so many targets: small enough that none waits for another's, a hub's included.
constexpr std::size_t turn_targets = 256;
// Less than this in all is done before another thread has started.
constexpr std::size_t min_thread_values = 1 << 16;
// Of the backward pass: columns that a thread adds up at a time, so that their sums stay in its cache.
constexpr std::size_t slice_vectors = 2;
constexpr std::size_t slice_columns = slice_vectors * vector_floats;

template <typename Value>
[[gnu::always_inline]] inline const Value* row_of(const Matrix<const Value>& matrix, std::size_t row) {
  return matrix.data + row * matrix.stride;
}

template <std::size_t num_vectors>
struct Accumulator {
  Floats vectors[num_vectors];
};

// -- forward --

// The sums of targets [begin, end) over num_vectors * 16 columns from `column` on (the last: only `last_count`).
template <std::size_t num_vectors, typename In, typename Out>
[[gnu::always_inline]] inline void sum_columns(const NeighborSums& sums, const Matrix<const In>& x,
                                               const Matrix<Out>& out, std::size_t begin, std::size_t end,
                                               std::size_t column, std::size_t last_count) {
  const bool has_weights = !sums.edge_weights.empty();
  const std::size_t last_edge = sums.indptr[end];
  std::size_t edge = sums.indptr[begin];
  for (std::size_t target = begin; target < end; ++target) {
    Accumulator<num_vectors> sum{};
    const std::size_t first_edge = edge;
    const std::size_t end_edge = sums.indptr[target + 1];
    for (; edge < end_edge; ++edge) {
      if (edge + edges_ahead < last_edge) {
        const In* ahead = row_of(x, sums.sources[edge + edges_ahead]) + column;
        for (std::size_t byte = 0; byte < num_vectors * vector_floats * sizeof(In); byte += line_bytes) {
          __builtin_prefetch(reinterpret_cast<const std::byte*>(ahead) + byte);
        }
      }
      const In* row = row_of(x, sums.sources[edge]) + column;
      const float weight = has_weights ? sums.edge_weights[edge] : 1.0F;
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        Floats values;
        load(row + vector * vector_floats, vector + 1 == num_vectors ? last_count : vector_floats, values);
        if (has_weights) values *= weight;
        sum.vectors[vector] += values;
      }
    }
    const bool divides = sums.is_mean && end_edge > first_edge;
    const auto divisor = static_cast<float>(end_edge - first_edge);
    const In* own = row_of(x, target) + column;
    Out* to = out.data + target * out.stride + column;
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      const std::size_t count = vector + 1 == num_vectors ? last_count : vector_floats;
      Floats values = sum.vectors[vector];
      if (divides) values /= divisor;
      Floats own_values;
      load(own + vector * vector_floats, count, own_values);
      if (!sums.self_weights.empty()) values += own_values * sums.self_weights[target];
      store(to + vector * vector_floats, count, values);
      if (out.num_columns != x.num_columns) store(to + x.num_columns + vector * vector_floats, count, own_values);
    }
  }
}

template <typename In, typename Out>
struct SumTargets {
  const NeighborSums& sums;
  const Matrix<const In>& x;
  const Matrix<Out>& out;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    std::size_t column = 0;
    for (; x.num_columns - column >= 8 * vector_floats; column += 8 * vector_floats) {
      sum_columns<8>(sums, x, out, begin, end, column, vector_floats);
    }
    for (; x.num_columns - column >= 4 * vector_floats; column += 4 * vector_floats) {
      sum_columns<4>(sums, x, out, begin, end, column, vector_floats);
    }
    while (column < x.num_columns) {
      const std::size_t count = std::min(x.num_columns - column, vector_floats);
      sum_columns<1>(sums, x, out, begin, end, column, count);
      column += count;
    }
  }
};

// -- backward --

// The gradient in num_vectors * 16 columns from `column` on (the last: only `last_count`), added up in `scratch`,
// which has that many floats for every row.
template <std::size_t num_vectors, typename Value>
[[gnu::always_inline]] inline void spread_columns(const NeighborSums& sums, const Matrix<const Value>& grad_out,
                                                  const Matrix<Value>& grad_x, std::size_t column,
                                                  std::size_t last_count, float* scratch) {
  constexpr std::size_t width = num_vectors * vector_floats;
  const bool is_beside = grad_out.num_columns != grad_x.num_columns;
  const std::size_t num_targets = sums.num_targets();
  for (std::size_t target = 0; target < num_targets; ++target) {
    const Value* grad = row_of(grad_out, target) + column;
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      const std::size_t count = vector + 1 == num_vectors ? last_count : vector_floats;
      Floats own{};
      if (is_beside) load(grad + grad_x.num_columns + vector * vector_floats, count, own);
      if (!sums.self_weights.empty()) {
        Floats values;
        load(grad + vector * vector_floats, count, values);
        own += values * sums.self_weights[target];
      }
      store(scratch + target * width + vector * vector_floats, vector_floats, own);
    }
  }
  const std::size_t num_rows = grad_x.num_rows;
  std::fill(scratch + num_targets * width, scratch + num_rows * width, 0.0F);

  const bool has_weights = !sums.edge_weights.empty();
  const std::size_t num_edges = sums.indptr[num_targets];
  for (std::size_t target = 0; target < num_targets; ++target) {
    const std::size_t first_edge = sums.indptr[target];
    const std::size_t end_edge = sums.indptr[target + 1];
    const Value* grad = row_of(grad_out, target) + column;
    Accumulator<num_vectors> part;
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      const std::size_t count = vector + 1 == num_vectors ? last_count : vector_floats;
      load(grad + vector * vector_floats, count, part.vectors[vector]);
      if (sums.is_mean) part.vectors[vector] /= static_cast<float>(end_edge - first_edge);
    }
    for (std::size_t edge = first_edge; edge < end_edge; ++edge) {
      if (edge + edges_ahead < num_edges) {
        const float* ahead = scratch + static_cast<std::size_t>(sums.sources[edge + edges_ahead]) * width;
        for (std::size_t value = 0; value < width; value += line_bytes / sizeof(float)) {
          __builtin_prefetch(ahead + value, 1);
        }
      }
      float* sum = scratch + static_cast<std::size_t>(sums.sources[edge]) * width;
      const float weight = has_weights ? sums.edge_weights[edge] : 1.0F;
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        Floats values;
        load(sum + vector * vector_floats, vector_floats, values);
        values += has_weights ? part.vectors[vector] * weight : part.vectors[vector];
        store(sum + vector * vector_floats, vector_floats, values);
      }
    }
  }
  for (std::size_t row = 0; row < num_rows; ++row) {
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      Floats values;
      load(scratch + row * width + vector * vector_floats, vector_floats, values);
      store(grad_x.data + row * grad_x.stride + column + vector * vector_floats,
            vector + 1 == num_vectors ? last_count : vector_floats, values);
    }
  }
}

template <typename Value>
struct SpreadSlice {
  const NeighborSums& sums;
  const Matrix<const Value>& grad_out;
  const Matrix<Value>& grad_x;

  [[gnu::always_inline]] void operator()(std::size_t slice, float* scratch) const {
    std::size_t column = slice * slice_columns;
    const std::size_t end = std::min(column + slice_columns, grad_x.num_columns);
    if (end - column == slice_columns) {
      spread_columns<slice_vectors>(sums, grad_out, grad_x, column, vector_floats, scratch);
      return;
    }
    while (column < end) {
      const std::size_t count = std::min(end - column, vector_floats);
      spread_columns<1>(sums, grad_out, grad_x, column, count, scratch);
      column += count;
    }
  }
};

// -- around them --

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

// One pass before anything is written: the kernels index with these.
void check(const NeighborSums& sums, std::size_t num_rows) {
  require(!sums.indptr.empty() && sums.indptr.front() == 0, "aggregate: indptr must start with 0");
  bool ascends = true;
  for (std::size_t target = 0; target + 1 < sums.indptr.size(); ++target) {
    ascends &= sums.indptr[target] <= sums.indptr[target + 1];
  }
  require(ascends, "aggregate: indptr must ascend");
  const auto num_edges = static_cast<std::size_t>(sums.indptr.back());
  require(num_edges <= sums.sources.size(), "aggregate: indptr must end within the sources");
  require(sums.num_targets() <= num_rows, "aggregate: targets must be the first of the sources' rows");
  require(sums.edge_weights.empty() || sums.edge_weights.size() >= num_edges, "aggregate: an edge has no weight");
  require(sums.self_weights.empty() || sums.self_weights.size() == sums.num_targets(),
          "aggregate: self weights must be one for each target");
  std::uint32_t largest = 0;
  // A negative id is a large one without its sign.
  for (std::size_t edge = 0; edge < num_edges; ++edge) {
    largest = std::max(largest, static_cast<std::uint32_t>(sums.sources[edge]));
  }
  if (num_edges > 0 && largest >= num_rows) {
    throw std::out_of_range("aggregate: source " + std::to_string(static_cast<std::int32_t>(largest)) +
                            " is outside the " + std::to_string(num_rows) + " rows");
  }
}

std::size_t useful_threads(unsigned num_threads, std::size_t num_turns, std::size_t num_values) {
  const std::size_t most = std::min(num_turns, 1 + num_values / min_thread_values);
  return std::max<std::size_t>(1, std::min<std::size_t>(num_threads, most));
}

}  // namespace

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> supported{InstructionSet::portable};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) supported.push_back(InstructionSet::avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    supported.push_back(InstructionSet::avx512);
  }
#endif
  return supported;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = supported_instruction_sets().back();
  return best;
}

template <typename In, typename Out>
void aggregate(const NeighborSums& sums, const Matrix<const In>& x, const Matrix<Out>& out, unsigned num_threads,
               InstructionSet instructions) {
  check(sums, x.num_rows);
  require(out.num_rows == sums.num_targets(), "aggregate: out must have a row for each target");
  require(out.num_columns == x.num_columns || out.num_columns == 2 * x.num_columns,
          "aggregate: out must have the columns of x, once or twice");
  const SumTargets<In, Out> task{sums, x, out};
  const std::size_t num_targets = sums.num_targets();
  const std::size_t num_turns = (num_targets + turn_targets - 1) / turn_targets;
  const std::size_t num_values = (num_targets + static_cast<std::size_t>(sums.indptr.back())) * x.num_columns;
  share_turns(num_turns, useful_threads(num_threads, num_turns, num_values), [&](std::size_t turn, std::size_t) {
    run_with(instructions, task, turn * turn_targets, std::min(num_targets, (turn + 1) * turn_targets));
  });
}

template <typename Value>
void aggregate_backward(const NeighborSums& sums, const Matrix<const Value>& grad_out, const Matrix<Value>& grad_x,
                        unsigned num_threads, InstructionSet instructions) {
  check(sums, grad_x.num_rows);
  require(grad_out.num_rows == sums.num_targets(), "aggregate: the gradient must have a row for each target");
  require(grad_out.num_columns == grad_x.num_columns || grad_out.num_columns == 2 * grad_x.num_columns,
          "aggregate: the gradient must have the columns of x, once or twice");
  const std::size_t num_slices = (grad_x.num_columns + slice_columns - 1) / slice_columns;
  const std::size_t num_values = (grad_x.num_rows + static_cast<std::size_t>(sums.indptr.back())) * grad_x.num_columns;
  const std::size_t num_lanes = useful_threads(num_threads, num_slices, num_values);
  const std::size_t lane_floats = grad_x.num_rows * slice_columns;
  // Rows of sums must not straddle more lines than they have.
  std::size_t scratch_bytes = num_lanes * lane_floats * sizeof(float) + line_bytes;
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(scratch_bytes);
  void* aligned = memory.get();
  auto* scratch = static_cast<float*>(std::align(line_bytes, scratch_bytes - line_bytes, aligned, scratch_bytes));
  const SpreadSlice<Value> task{sums, grad_out, grad_x};
  share_turns(num_slices, num_lanes, [&](std::size_t slice, std::size_t lane) {
    run_with(instructions, task, slice, scratch + lane * lane_floats);
  });
}

template void aggregate(const NeighborSums&, const Matrix<const float>&, const Matrix<float>&, unsigned,
                        InstructionSet);
template void aggregate(const NeighborSums&, const Matrix<const Bfloat16>&, const Matrix<float>&, unsigned,
                        InstructionSet);
template void aggregate(const NeighborSums&, const Matrix<const Float16>&, const Matrix<float>&, unsigned,
                        InstructionSet);
template void aggregate(const NeighborSums&, const Matrix<const float>&, const Matrix<Bfloat16>&, unsigned,
                        InstructionSet);
template void aggregate(const NeighborSums&, const Matrix<const Bfloat16>&, const Matrix<Bfloat16>&, unsigned,
                        InstructionSet);
template void aggregate(const NeighborSums&, const Matrix<const Float16>&, const Matrix<Bfloat16>&, unsigned,
                        InstructionSet);
template void aggregate_backward(const NeighborSums&, const Matrix<const float>&, const Matrix<float>&, unsigned,
                                 InstructionSet);
template void aggregate_backward(const NeighborSums&, const Matrix<const Bfloat16>&, const Matrix<Bfloat16>&, unsigned,
                                 InstructionSet);

}  // namespace diskhop
