#include <cmath>

#include "nn/attention_lists.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Prefetch distance in rows: enough to hide the latency of memory, few enough to stay in the cache.
constexpr std::size_t edges_ahead = 12;
constexpr std::size_t line_bytes = 64;
// Vectors of sums that stay in registers.
constexpr std::size_t block_vectors = 8;

/// Columns of heads: head h reads `dim` columns from h * row_step on, and writes those from h * dim on.
struct HeadColumns {
  std::size_t num_heads = 0;
  std::size_t dim = 0;
  std::size_t row_step = 0;
};

template <typename Value>
[[gnu::always_inline]] inline void prefetch_row(const Value* row, std::size_t num_columns) {
  const auto* bytes = reinterpret_cast<const std::byte*>(row);
  for (std::size_t byte = 0; byte < num_columns * sizeof(Value); byte += line_bytes) __builtin_prefetch(bytes + byte);
}

/// A target's edges, and where its slots begin.
struct TargetList {
  std::size_t edge;
  std::size_t end_edge;
  std::size_t end;  // of the slots
  std::size_t slot;

  [[gnu::always_inline]] TargetList(const NeighborLists& lists, std::size_t target)
      : edge(lists.indptr[target]),
        end_edge(lists.indptr[target + 1]),
        end(slots_end(lists, end_edge)),
        slot(first_slot(lists, target)) {}
};

template <std::size_t lanes, typename Value>
struct SumTask {
  const NeighborLists& lists;
  const SlotWeights& weights;
  const Matrix<const Value>& rows;
  const Matrix<float>& out;
  std::size_t first_target;  // target of out's first row
  HeadColumns columns;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    const auto last_edge = static_cast<std::size_t>(lists.indptr[end]);
    auto ahead = static_cast<std::size_t>(lists.indptr[begin]);
    for (std::size_t target = begin; target < end; ++target) {
      const std::size_t ready = std::min(last_edge, lists.indptr[target + 1] + edges_ahead);
      for (; ahead < ready; ++ahead) prefetch_row(rows.data + lists.sources[ahead] * rows.stride, rows.num_columns);
      for (std::size_t head = 0; head < columns.num_heads; ++head) sum_head(target, head);
    }
  }

  [[gnu::always_inline]] void sum_head(std::size_t target, std::size_t head) const {
    std::size_t column = 0;
    const auto fits = [&](std::size_t num_vectors) { return columns.dim - column >= num_vectors * vector_floats; };
    // As many as registers hold.
    if constexpr (lanes == vector_floats) {
      for (; fits(8); column += 8 * vector_floats) sum_columns<8>(target, head, column, vector_floats);
    }
    for (; fits(4); column += 4 * vector_floats) sum_columns<4>(target, head, column, vector_floats);
    for (; fits(2); column += 2 * vector_floats) sum_columns<2>(target, head, column, vector_floats);
    for (; column < columns.dim; column += vector_floats) {
      sum_columns<1>(target, head, column, std::min(vector_floats, columns.dim - column));
    }
  }

  template <std::size_t num_vectors>
  [[gnu::always_inline]] void sum_columns(std::size_t target, std::size_t head, std::size_t column,
                                          std::size_t count) const {
    Floats<lanes> sums[num_vectors] = {};
    const TargetList list(lists, target);
    // Indices: where there are no edges at all, there are no weights or rows to point to.
    std::size_t slot = list.slot * weights.values.stride + head;
    const std::size_t from = head * columns.row_step + column;
    for (std::size_t edge = list.edge; edge < list.end; ++edge, slot += weights.values.stride) {
      const Value* row = rows.data + (row_of_slot(lists, target, edge, list.end_edge) * rows.stride + from);
      const float factor = coefficient(weights.values.data[slot], weights);
      for (std::size_t vector = 0; vector < num_vectors; ++vector) {
        Floats<lanes> values;
        load(row + vector * vector_floats, count, values);
        sums[vector] += values * factor;
      }
    }
    float* to = out.data + (target - first_target) * out.stride + head * columns.dim + column;
    for (std::size_t vector = 0; vector < num_vectors; ++vector)
      store(to + vector * vector_floats, count, sums[vector]);
  }
};

template <std::size_t lanes, typename Value>
struct ProductTask {
  const NeighborLists& lists;
  const SlotWeights& weights;
  const Matrix<const Value>& rows;
  const Matrix<const float>& grad_out;
  const Matrix<float>& grad_weights;
  std::size_t first_target;
  HeadColumns columns;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    const auto last_edge = static_cast<std::size_t>(lists.indptr[end]);
    auto ahead = static_cast<std::size_t>(lists.indptr[begin]);
    for (std::size_t target = begin; target < end; ++target) {
      const std::size_t ready = std::min(last_edge, lists.indptr[target + 1] + edges_ahead);
      for (; ahead < ready; ++ahead) prefetch_row(rows.data + lists.sources[ahead] * rows.stride, rows.num_columns);
      multiply(target);
    }
  }

  [[gnu::always_inline]] void multiply(std::size_t target) const {
    const TargetList list(lists, target);
    const float* grad = grad_out.data + (target - first_target) * grad_out.stride;
    std::size_t slot = list.slot * grad_weights.stride;
    for (std::size_t edge = list.edge; edge < list.end; ++edge) {
      const Value* row = rows.data + row_of_slot(lists, target, edge, list.end_edge) * rows.stride;
      for (std::size_t head = 0; head < columns.num_heads; ++head, ++slot) {
        const bool is_dropped = weights.is_attention && std::signbit(weights.values.data[slot]);
        grad_weights.data[slot] =
            is_dropped ? 0.0F : weights.scale * product(row + head * columns.row_step, grad + head * columns.dim);
      }
    }
  }

  [[gnu::always_inline]] float product(const Value* row, const float* grad) const {
    Floats<lanes> sums{};
    Floats<lanes> left;
    Floats<lanes> right;
    std::size_t column = 0;
    for (; column + vector_floats <= columns.dim; column += vector_floats) {
      load(row + column, vector_floats, left);
      load(grad + column, vector_floats, right);
      sums += left * right;
    }
    if (column < columns.dim) {
      load(row + column, columns.dim - column, left);
      load(grad + column, columns.dim - column, right);
      sums += left * right;
    }
    return sum_of(sums);
  }
};

template <std::size_t lanes>
struct SpreadTask {
  const NeighborLists& lists;
  TargetRange range;
  const SlotWeights& weights;
  const Matrix<const float>& grad_out;
  const Matrix<float>& grad_rows;
  HeadColumns columns;
  RowShare share;

  [[gnu::always_inline]] void operator()() const {
    const auto last_edge = static_cast<std::size_t>(lists.indptr[range.end]);
    auto ahead = static_cast<std::size_t>(lists.indptr[range.begin]);
    for (std::size_t target = range.begin; target < range.end; ++target) {
      const TargetList list(lists, target);
      const float* factors = weights.values.data + list.slot * weights.values.stride;
      const float* grad = grad_out.data + (target - range.begin) * grad_out.stride;
      const std::size_t ready = std::min(last_edge, list.end_edge + edges_ahead);
      for (; ahead < ready; ++ahead) {
        const auto row = static_cast<std::size_t>(lists.sources[ahead]);
        if (share.owns(row)) prefetch_row(grad_rows.data + row * grad_rows.stride, grad_rows.num_columns);
      }
      for (std::size_t edge = list.edge; edge < list.end; ++edge, factors += weights.values.stride) {
        const std::size_t row = row_of_slot(lists, target, edge, list.end_edge);
        if (share.owns(row)) add(factors, grad, grad_rows.data + row * grad_rows.stride);
      }
    }
  }

  [[gnu::always_inline]] void add(const float* factors, const float* grad, float* to) const {
    for (std::size_t head = 0; head < columns.num_heads; ++head) {
      const float factor = coefficient(factors[head], weights);
      for (std::size_t column = 0; column < columns.dim; column += vector_floats) {
        const std::size_t count = std::min(vector_floats, columns.dim - column);
        Floats<lanes> sum;
        Floats<lanes> values;
        load(to + head * columns.row_step + column, count, sum);
        load(grad + head * columns.dim + column, count, values);
        sum += values * factor;
        store(to + head * columns.row_step + column, count, sum);
      }
    }
  }
};

/// Checks the arguments of all functions: values by slot, rows of `row_columns`, sums of `sums`.
HeadColumns check_sums(const NeighborLists& lists, TargetRange range, const Matrix<const float>& by_slot,
                       std::size_t num_rows, std::size_t row_columns, const Matrix<const float>& sums) {
  check_lists(lists, range, num_rows);
  check_slots(lists, by_slot);
  require_attention(sums.num_rows == range.end - range.begin, "sums must have a row for each target of the range");
  const std::size_t num_heads = by_slot.num_columns;
  require_attention(row_columns > 0 && sums.num_columns % num_heads == 0 &&
                        (sums.num_columns == row_columns || sums.num_columns == row_columns * num_heads),
                    "sums must have the columns of the rows, or that number per head");
  const std::size_t dim = sums.num_columns / num_heads;
  return {.num_heads = num_heads, .dim = dim, .row_step = sums.num_columns == row_columns ? dim : 0};
}

std::size_t threads_for(const NeighborLists& lists, TargetRange range, std::size_t num_columns, unsigned num_threads) {
  return useful_threads(num_threads, (first_slot(lists, range.end) - first_slot(lists, range.begin)) * num_columns);
}

}  // namespace

template <typename Value>
void attend(const NeighborLists& lists, TargetRange range, const SlotWeights& weights, const Matrix<const Value>& rows,
            const Matrix<float>& out, unsigned num_threads, InstructionSet instructions) {
  const HeadColumns columns = check_sums(lists, range, weights.values, rows.num_rows, rows.num_columns, as_const(out));
  const std::size_t num_shares = threads_for(lists, range, out.num_columns, num_threads);
  with_instructions(instructions, [&](auto set) {
    const SumTask<set.lanes, Value> task{lists, weights, rows, out, range.begin, columns};
    share_targets(range, num_shares, [&](TargetRange turn) { set.run(task, turn.begin, turn.end); });
  });
}

template <typename Value>
void attend_backward_attention(const NeighborLists& lists, TargetRange range, const SlotWeights& weights,
                               const Matrix<const Value>& rows, const Matrix<const float>& grad_out,
                               const Matrix<float>& grad_attention, unsigned num_threads, InstructionSet instructions) {
  const HeadColumns columns =
      check_sums(lists, range, as_const(grad_attention), rows.num_rows, rows.num_columns, grad_out);
  if (weights.is_attention) {
    check_slots(lists, weights.values);
    require_attention(grad_attention.num_columns == weights.values.num_columns,
                      "attention and its gradient must have the same number of heads");
  }
  const std::size_t num_shares = threads_for(lists, range, grad_out.num_columns, num_threads);
  with_instructions(instructions, [&](auto set) {
    const ProductTask<set.lanes, Value> task{lists, weights, rows, grad_out, grad_attention, range.begin, columns};
    share_targets(range, num_shares, [&](TargetRange turn) { set.run(task, turn.begin, turn.end); });
  });
}

template <typename Value>
void slot_products(const NeighborLists& lists, const Matrix<const Value>& rows, const Matrix<const float>& targets,
                   const Matrix<float>& products, unsigned num_threads, InstructionSet instructions) {
  require_attention(rows.num_columns == targets.num_columns, "sources and targets must have the same columns");
  // The product of a slot's row with its target's gradient is the gradient of a weight that nothing drops.
  attend_backward_attention(lists, {0, lists.num_targets()}, {.values = {}, .scale = 1, .is_attention = false}, rows,
                            targets, products, num_threads, instructions);
}

void attend_backward_rows(const NeighborLists& lists, TargetRange range, const SlotWeights& weights,
                          const Matrix<const float>& grad_out, const Matrix<float>& grad_rows, unsigned num_threads,
                          InstructionSet instructions) {
  const HeadColumns columns =
      check_sums(lists, range, weights.values, grad_rows.num_rows, grad_rows.num_columns, grad_out);
  const std::size_t num_shares = threads_for(lists, range, grad_out.num_columns, num_threads);
  share_turns(num_shares, num_shares, [&](std::size_t turn, std::size_t) {
    with_instructions(instructions, [&](auto set) {
      set.run(SpreadTask<set.lanes>{lists, range, weights, grad_out, grad_rows, columns, {turn, num_shares}});
    });
  });
}

template void attend(const NeighborLists&, TargetRange, const SlotWeights&, const Matrix<const float>&,
                     const Matrix<float>&, unsigned, InstructionSet);
template void attend(const NeighborLists&, TargetRange, const SlotWeights&, const Matrix<const Bfloat16>&,
                     const Matrix<float>&, unsigned, InstructionSet);
template void attend_backward_attention(const NeighborLists&, TargetRange, const SlotWeights&,
                                        const Matrix<const float>&, const Matrix<const float>&, const Matrix<float>&,
                                        unsigned, InstructionSet);
template void attend_backward_attention(const NeighborLists&, TargetRange, const SlotWeights&,
                                        const Matrix<const Bfloat16>&, const Matrix<const float>&, const Matrix<float>&,
                                        unsigned, InstructionSet);
template void slot_products(const NeighborLists&, const Matrix<const float>&, const Matrix<const float>&,
                            const Matrix<float>&, unsigned, InstructionSet);
template void slot_products(const NeighborLists&, const Matrix<const Bfloat16>&, const Matrix<const float>&,
                            const Matrix<float>&, unsigned, InstructionSet);

}  // namespace diskhop
