#include "hops/neighbor_sums.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "hops/column_sums.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

// Sums num_quads * 4 columns from `column` on.
template <std::size_t lanes, typename Index, bool is_weighted, std::size_t num_quads>
struct SumColumns {
  const ListPart& part;
  const Block& block;
  float* sums;
  std::size_t column;

  [[gnu::always_inline]] void operator()() const {
    const auto* next = reinterpret_cast<const Index*>(part.indices);
    const float* weight = part.weights;
    std::int64_t edge = part.first_edge;
    for (std::size_t row = 0; row < part.num_rows; ++row) {
      const std::int64_t end_edge = std::min(part.ends[row], part.end_edge);
      const Index* const end = next + (end_edge - edge);
      edge = end_edge;
      // The first run needs no addition: most lists have no other.
      Sums total = next < end ? sum_run(next, std::min(next + run_edges, end), weight) : Sums{};
      while (next < end) total.add(sum_run(next, std::min(next + run_edges, end), weight));
      total.put(sums + row * block.num_columns + column);
    }
  }

  using Sums = ColumnSums<lanes, num_quads>;

  [[gnu::always_inline]] Sums sum_run(const Index*& next, const Index* end, const float*& weight) const {
    // A copy: by reference, the compiler must assume that the sums change it.
    const Block rows = block;
    const float* const columns = rows.data + column;
    const std::size_t edges_ahead = part.edges_ahead;
    Sums sums_of_run;
    for (; next < end; ++next) {
      prefetch_columns(reinterpret_cast<std::uintptr_t>(columns) +
                           rows.place(static_cast<std::size_t>(next[edges_ahead])) * sizeof(float),
                       num_quads * sizeof(Quad));
      const float* const from = columns + rows.place(static_cast<std::size_t>(*next));
      if constexpr (is_weighted) {
        sums_of_run.add_times(from, *weight++);
      } else {
        sums_of_run.add(from);
      }
    }
    return sums_of_run;
  }
};

template <typename Index>
struct FindLargest {
  const ListPart& part;
  std::uint64_t& largest;

  [[gnu::always_inline]] void operator()() const {
    using Unsigned = std::make_unsigned_t<Index>;
    const auto* indices = reinterpret_cast<const Unsigned*>(part.indices);
    Unsigned most = 0;
    for (std::int64_t i = 0; i < part.end_edge - part.first_edge; ++i) most = std::max(most, indices[i]);
    largest = most;
  }
};

using SumFunction = void (*)(const ListPart&, const Block&, float*, std::size_t, InstructionSet);

template <typename Index, bool is_weighted, std::size_t num_quads>
void sum_columns(const ListPart& part, const Block& block, float* sums, std::size_t column,
                 InstructionSet instructions) {
  with_instructions(instructions, [&](auto set) {
    set.run(SumColumns<set.lanes, Index, is_weighted, num_quads>{part, block, sums, column});
  });
}

template <typename Index, bool is_weighted, std::size_t... quads>
constexpr std::array<SumFunction, max_quads> functions_of(std::index_sequence<quads...> /*one less than quads*/) {
  return {&sum_columns<Index, is_weighted, quads + 1>...};
}

template <typename Index, bool is_weighted>
void sum_all_columns(const ListPart& part, const Block& block, float* sums, InstructionSet instructions) {
  static constexpr auto functions = functions_of<Index, is_weighted>(std::make_index_sequence<max_quads>());
  for (std::size_t column = 0; column < block.num_columns; column += max_quads * quad_floats) {
    const std::size_t num_quads = std::min((block.num_columns - column) / quad_floats, max_quads);
    functions[num_quads - 1](part, block, sums, column, instructions);
  }
}

}  // namespace

void sum_lists(const ListPart& part, const Block& block, float* sums, InstructionSet instructions) {
  if (part.weights == nullptr) {
    if (part.index_bytes == 4) return sum_all_columns<std::uint32_t, false>(part, block, sums, instructions);
    return sum_all_columns<std::int64_t, false>(part, block, sums, instructions);
  }
  if (part.index_bytes == 4) return sum_all_columns<std::uint32_t, true>(part, block, sums, instructions);
  sum_all_columns<std::int64_t, true>(part, block, sums, instructions);
}

std::uint64_t largest_index(const ListPart& part, InstructionSet instructions) {
  std::uint64_t largest = 0;
  if (part.index_bytes == 4) {
    run_with(instructions, FindLargest<std::uint32_t>{part, largest});
  } else {
    run_with(instructions, FindLargest<std::int64_t>{part, largest});
  }
  return largest;
}

}  // namespace diskhop
