#include "diskhop/nn/aggregate.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

#include "base/turns.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Prefetch distance in rows; values between 12 and 40 make no difference.
constexpr std::size_t edges_ahead = 16;

constexpr std::size_t line_bytes = 64;
// Rows of a block: about this many values, and at least this many rows.
constexpr std::size_t block_values = 4096;
constexpr std::size_t min_block_rows = 4;
// Rows per turn: small enough that no thread waits for another one's turn, even with a hub in it.
constexpr std::size_t turn_rows = 256;
// Fewer values in total take less time than starting another thread.
constexpr std::size_t min_thread_values = 1 << 16;
template <typename Value>
[[gnu::always_inline]] inline const Value* row_of(const Matrix<const Value>& matrix, std::size_t row) {
  return matrix.data + row * matrix.stride;
}

template <std::size_t lanes, std::size_t num_vectors>
struct Accumulator {
  Floats<lanes> vectors[num_vectors];
};

// Adds the rows of edges [begin, end), each times its weight if there are weights, over num_vectors * 16 columns from
// `column` on (the last vector: only `last_count`). Prefetches later rows, up to `last_edge`.
template <std::size_t lanes, std::size_t num_vectors, typename Value>
[[gnu::always_inline]] inline void add_rows(const std::int32_t* rows, const float* weights,
                                            const Matrix<const Value>& matrix, std::size_t begin, std::size_t end,
                                            std::size_t last_edge, std::size_t column, std::size_t last_count,
                                            Accumulator<lanes, num_vectors>& sum) {
  for (std::size_t edge = begin; edge < end; ++edge) {
    if (edge + edges_ahead < last_edge) {
      const Value* ahead = row_of(matrix, rows[edge + edges_ahead]) + column;
      for (std::size_t byte = 0; byte < num_vectors * vector_floats * sizeof(Value); byte += line_bytes) {
        __builtin_prefetch(reinterpret_cast<const std::byte*>(ahead) + byte);
      }
    }
    const Value* row = row_of(matrix, rows[edge]) + column;
    const float weight = weights != nullptr ? weights[edge] : 1.0F;
    for (std::size_t vector = 0; vector < num_vectors; ++vector) {
      Floats<lanes> values;
      load(row + vector * vector_floats, vector + 1 == num_vectors ? last_count : vector_floats, values);
      if (weights != nullptr) values *= weight;
      sum.vectors[vector] += values;
    }
  }
}

// Rows of a block, and the end of those that are computed after them.
struct Rows {
  std::size_t begin;
  std::size_t end;
  std::size_t last;
};

// Calls task.columns<num_vectors>(rows, column, last_count) for blocks of rows and all columns, with as many as
// registers hold. A block is so small that the next columns of wide rows find their pages in the TLB.
template <std::size_t lanes, typename Task>
[[gnu::always_inline]] inline void for_columns(const Task& task, std::size_t num_columns, std::size_t begin,
                                               std::size_t end) {
  const std::size_t num_rows = std::max(min_block_rows, block_values / std::max<std::size_t>(1, num_columns));
  for (Rows rows{begin, begin, end}; rows.begin < end; rows.begin = rows.end) {
    rows.end = std::min(end, rows.begin + num_rows);
    std::size_t column = 0;
    if constexpr (lanes == vector_floats) {
      for (; num_columns - column >= 8 * vector_floats; column += 8 * vector_floats) {
        task.template columns<8>(rows, column, vector_floats);
      }
    }
    for (; num_columns - column >= 4 * vector_floats; column += 4 * vector_floats) {
      task.template columns<4>(rows, column, vector_floats);
    }
    while (column < num_columns) {
      const std::size_t count = std::min(num_columns - column, vector_floats);
      task.template columns<1>(rows, column, count);
      column += count;
    }
  }
}

/// Whether own rows are part of the result: by a weight, or next to the sum.
[[nodiscard]] inline bool reads_own_rows(const NeighborSums& sums, std::size_t num_columns, std::size_t sum_columns) {
  return !sums.self_weights.empty() || sum_columns != num_columns;
}

template <std::size_t lanes, typename In, typename Out>
struct SumTargets {
  const NeighborSums& sums;
  const Matrix<const In>& x;
  const Matrix<Out>& out;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for_columns<lanes>(*this, x.num_columns, begin, end);
  }

  template <std::size_t num_vectors>
  [[gnu::always_inline]] void columns(const Rows& rows, std::size_t column, std::size_t last_count) const {
    const float* weights = sums.edge_weights.empty() ? nullptr : sums.edge_weights.data();
    const bool reads_own = reads_own_rows(sums, x.num_columns, out.num_columns);
    const std::size_t last_edge = sums.indptr[rows.last];
    std::size_t first_edge = sums.indptr[rows.begin];
    for (std::size_t target = rows.begin; target < rows.end; ++target) {
      const std::size_t end_edge = sums.indptr[target + 1];
      Accumulator<lanes, num_vectors> sum{};
      add_rows(sums.sources.data(), weights, x, first_edge, end_edge, last_edge, column, last_count, sum);
      const bool divides = sums.is_mean && end_edge > first_edge;
      const auto divisor = static_cast<float>(end_edge - first_edge);
      Out* to = out.data + target * out.stride + column;
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        const std::size_t count = vector + 1 == num_vectors ? last_count : vector_floats;
        Floats<lanes> values = sum.vectors[vector];
        if (divides) values /= divisor;
        if (reads_own) {
          const In* own = row_of(x, sums.own_rows.empty() ? target : sums.own_rows[target]) + column;
          Floats<lanes> own_values;
          load(own + vector * vector_floats, count, own_values);
          if (!sums.self_weights.empty()) values += own_values * sums.self_weights[target];
          if (out.num_columns != x.num_columns) store(to + x.num_columns + vector * vector_floats, count, own_values);
        }
        store(to + vector * vector_floats, count, values);
      }
      first_edge = end_edge;
    }
  }
};

// The edges by source, those of a source in the order of the edges: row r is read by the targets at [indptr[r] ..
// indptr[r + 1]), with these weights (a mean's divisor included).
class ReadersOfRows {
 public:
  ReadersOfRows(const NeighborSums& sums, std::size_t num_rows, BufferPool& scratch)
      : memory_(scratch, (num_rows + 1 + 2 * static_cast<std::size_t>(sums.indptr.back())) * sizeof(std::int32_t)) {
    const auto num_edges = static_cast<std::size_t>(sums.indptr.back());
    auto* words = reinterpret_cast<std::int32_t*>(memory_.data());
    const std::span indptr(words, num_rows + 1);
    const std::span targets(words + num_rows + 1, num_edges);
    const std::span weights(reinterpret_cast<float*>(targets.data() + num_edges), num_edges);
    std::ranges::fill(indptr, 0);
    for (std::size_t edge = 0; edge < num_edges; ++edge) ++indptr[sums.sources[edge]];
    // From here on each row's entry moves from the end of its targets to their start.
    for (std::size_t row = 0; row < num_rows; ++row) indptr[row + 1] += indptr[row];
    for (std::size_t target = sums.num_targets(); target-- > 0;) {
      const auto degree = static_cast<float>(sums.indptr[target + 1] - sums.indptr[target]);
      const float share = sums.is_mean ? 1.0F / degree : 1.0F;
      for (std::int32_t edge = sums.indptr[target + 1]; edge-- > sums.indptr[target];) {
        const std::int32_t at = --indptr[sums.sources[edge]];
        targets[at] = static_cast<std::int32_t>(target);
        weights[at] = sums.edge_weights.empty() ? share : share * sums.edge_weights[edge];
      }
    }
    indptr_ = indptr.data();
    targets_ = targets.data();
    weights_ = weights.data();
  }

  [[nodiscard]] const std::int32_t* indptr() const { return indptr_; }
  [[nodiscard]] const std::int32_t* targets() const { return targets_; }
  [[nodiscard]] const float* weights() const { return weights_; }

 private:
  PooledBuffer memory_;
  const std::int32_t* indptr_ = nullptr;
  const std::int32_t* targets_ = nullptr;
  const float* weights_ = nullptr;
};

template <std::size_t lanes, typename Value>
struct SumReaders {
  const NeighborSums& sums;
  const ReadersOfRows& readers;
  const Matrix<const Value>& grad_out;
  const Matrix<Value>& grad_x;
  bool adds;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for_columns<lanes>(*this, grad_x.num_columns, begin, end);
  }

  template <std::size_t num_vectors>
  [[gnu::always_inline]] void columns(const Rows& rows, std::size_t column, std::size_t last_count) const {
    const bool has_own_columns = grad_out.num_columns != grad_x.num_columns;
    const bool reads_own = reads_own_rows(sums, grad_x.num_columns, grad_out.num_columns);
    const std::size_t num_targets = sums.num_targets();
    const std::int32_t* indptr = readers.indptr();
    const std::size_t last_edge = indptr[rows.last];
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      Accumulator<lanes, num_vectors> sum{};
      Value* to = grad_x.data + row * grad_x.stride + column;
      for (std::size_t vector = 0; adds && vector < num_vectors; ++vector) {
        load(to + vector * vector_floats, vector + 1 == num_vectors ? last_count : vector_floats, sum.vectors[vector]);
      }
      if (reads_own && row < num_targets) {
        const Value* own = row_of(grad_out, row) + column;
        for (std::size_t vector = 0; vector < num_vectors; ++vector) {
          const std::size_t count = vector + 1 == num_vectors ? last_count : vector_floats;
          if (has_own_columns) {
            Floats<lanes> values;
            load(own + grad_x.num_columns + vector * vector_floats, count, values);
            if (adds) values += sum.vectors[vector];
            sum.vectors[vector] = values;
          }
          if (!sums.self_weights.empty()) {
            Floats<lanes> values;
            load(own + vector * vector_floats, count, values);
            sum.vectors[vector] += values * sums.self_weights[row];
          }
        }
      }
      add_rows(readers.targets(), readers.weights(), grad_out, indptr[row], indptr[row + 1], last_edge, column,
               last_count, sum);
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        store(to + vector * vector_floats, vector + 1 == num_vectors ? last_count : vector_floats, sum.vectors[vector]);
      }
    }
  }
};

// -- checks and threads --

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

void check_rows(const char* what, std::span<const std::int32_t> rows, std::size_t num_rows) {
  std::uint32_t largest = 0;
  // A negative number is a large one without its sign.
  for (const std::int32_t row : rows) largest = std::max(largest, static_cast<std::uint32_t>(row));
  if (!rows.empty() && largest >= num_rows) {
    throw std::out_of_range(std::string("aggregate: ") + what + " " +
                            std::to_string(static_cast<std::int32_t>(largest)) + " is outside the " +
                            std::to_string(num_rows) + " rows");
  }
}

// Checked before anything is written: the kernels use these as indices.
void check(const NeighborSums& sums, std::size_t num_rows, bool reads_own) {
  require(!sums.indptr.empty() && sums.indptr.front() == 0, "aggregate: indptr must start with 0");
  bool ascends = true;
  for (std::size_t target = 0; target + 1 < sums.indptr.size(); ++target) {
    ascends &= sums.indptr[target] <= sums.indptr[target + 1];
  }
  require(ascends, "aggregate: indptr must ascend");
  const auto num_edges = static_cast<std::size_t>(sums.indptr.back());
  require(num_edges <= sums.sources.size(), "aggregate: indptr must end within the sources");
  if (sums.own_rows.empty()) {
    require(!reads_own || sums.num_targets() <= num_rows, "aggregate: targets must be the first of the sources' rows");
  } else {
    require(sums.own_rows.size() == sums.num_targets(), "aggregate: own rows must be one for each target");
  }
  require(sums.edge_weights.empty() || sums.edge_weights.size() >= num_edges, "aggregate: an edge has no weight");
  require(sums.self_weights.empty() || sums.self_weights.size() == sums.num_targets(),
          "aggregate: self weights must be one for each target");
  check_rows("source", sums.sources.first(num_edges), num_rows);
  check_rows("own row", sums.own_rows, num_rows);
}

template <typename Set, typename Task>
void share_rows(Set set, const Task& task, std::size_t num_rows, std::size_t num_values, unsigned num_threads) {
  const std::size_t num_turns = (num_rows + turn_rows - 1) / turn_rows;
  const std::size_t useful_threads = 1 + num_values / min_thread_values;
  const std::size_t threads = std::clamp<std::size_t>(num_threads, 1, useful_threads);
  share_turns(num_turns, threads, [&](std::size_t turn, std::size_t) {
    set.run(task, turn * turn_rows, std::min(num_rows, (turn + 1) * turn_rows));
  });
}

}  // namespace

template <typename In, typename Out>
void aggregate(const NeighborSums& sums, const Matrix<const In>& x, const Matrix<Out>& out, unsigned num_threads,
               InstructionSet instructions) {
  check(sums, x.num_rows, reads_own_rows(sums, x.num_columns, out.num_columns));
  require(out.num_rows == sums.num_targets(), "aggregate: out must have a row for each target");
  require(out.num_columns == x.num_columns || out.num_columns == 2 * x.num_columns,
          "aggregate: out must have the columns of x, once or twice");
  const std::size_t num_targets = sums.num_targets();
  const std::size_t num_values = (num_targets + static_cast<std::size_t>(sums.indptr.back())) * x.num_columns;
  with_instructions(instructions, [&](auto set) {
    share_rows(set, SumTargets<set.lanes, In, Out>{sums, x, out}, num_targets, num_values, num_threads);
  });
}

template <typename Value>
void aggregate_backward(const NeighborSums& sums, const Matrix<const Value>& grad_out, const Matrix<Value>& grad_x,
                        BufferPool& scratch, unsigned num_threads, bool adds, InstructionSet instructions) {
  check(sums, grad_x.num_rows, reads_own_rows(sums, grad_x.num_columns, grad_out.num_columns));
  require(sums.own_rows.empty(), "aggregate: there is no gradient for rows that lie anywhere");
  require(grad_out.num_rows == sums.num_targets(), "aggregate: the gradient must have a row for each target");
  require(grad_out.num_columns == grad_x.num_columns || grad_out.num_columns == 2 * grad_x.num_columns,
          "aggregate: the gradient must have the columns of x, once or twice");
  const ReadersOfRows readers(sums, grad_x.num_rows, scratch);
  const std::size_t num_values = (grad_x.num_rows + static_cast<std::size_t>(sums.indptr.back())) * grad_x.num_columns;
  with_instructions(instructions, [&](auto set) {
    const SumReaders<set.lanes, Value> task{sums, readers, grad_out, grad_x, adds};
    share_rows(set, task, grad_x.num_rows, num_values, num_threads);
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
template void aggregate_backward(const NeighborSums&, const Matrix<const float>&, const Matrix<float>&, BufferPool&,
                                 unsigned, bool, InstructionSet);
template void aggregate_backward(const NeighborSums&, const Matrix<const Bfloat16>&, const Matrix<Bfloat16>&,
                                 BufferPool&, unsigned, bool, InstructionSet);

}  // namespace diskhop
