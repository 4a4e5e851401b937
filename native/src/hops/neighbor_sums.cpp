#include "hops/neighbor_sums.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "hops/tile_values.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t quad_floats = 4;
// Columns that are summed at a time, in quads: as many as registers hold, including AVX2's 16.
constexpr std::size_t max_quads = 16;
// Edges per run: a run is added edge by edge, then the runs' sums are added. Rounding errors grow with the longer of
// both, so they are smallest if a piece has as many runs as a run has edges.
constexpr std::ptrdiff_t run_edges = 128;
static_assert(run_edges * run_edges == static_cast<std::ptrdiff_t>(piece_edges));

using Octet [[gnu::vector_size(32)]] = float;

template <typename Vector>
[[gnu::always_inline]] inline void add_to(Vector& sum, const float*& from) {
  Vector values;
  std::memcpy(&values, from, sizeof values);
  sum += values;
  from += sizeof(Vector) / sizeof(float);
}

template <typename Vector>
[[gnu::always_inline]] inline void put_at(float*& to, const Vector& sum) {
  std::memcpy(to, &sum, sizeof sum);
  to += sizeof(Vector) / sizeof(float);
}

// Sums num_quads * 4 columns from `column` on.
template <typename Index, std::size_t num_quads>
struct SumColumns {
  const ListPart& part;
  const Block& block;
  float* sums;
  std::size_t column;

  [[gnu::always_inline]] void operator()() const {
    const auto* next = reinterpret_cast<const Index*>(part.indices);
    std::int64_t edge = part.first_edge;
    for (std::size_t row = 0; row < part.num_rows; ++row) {
      const std::int64_t end_edge = std::min(part.ends[row], part.end_edge);
      const Index* const end = next + (end_edge - edge);
      edge = end_edge;
      // The first run needs no addition: most lists have no other.
      Sums total = next < end ? sum_run(next, std::min(next + run_edges, end)) : Sums{};
      while (next < end) total.add(sum_run(next, std::min(next + run_edges, end)));
      total.put(sums + row * block.num_columns + column);
    }
  }

  // Vectors of whole registers: part of one would be loaded by way of the stack.
  struct Sums {
    std::array<Floats, num_quads / 4> wide{};
    Octet octet{};
    Quad quad{};

    [[gnu::always_inline]] void add(const float* from) {
      for (Floats& sum : wide) add_to(sum, from);
      if constexpr (num_quads % 4 >= 2) add_to(octet, from);
      if constexpr (num_quads % 2 == 1) add_to(quad, from);
    }
    [[gnu::always_inline]] void add(const Sums& other) {
      for (std::size_t i = 0; i < wide.size(); ++i) wide[i] += other.wide[i];
      octet += other.octet;
      quad += other.quad;
    }
    [[gnu::always_inline]] void put(float* to) const {
      for (const Floats& sum : wide) put_at(to, sum);
      if constexpr (num_quads % 4 >= 2) put_at(to, octet);
      if constexpr (num_quads % 2 == 1) put_at(to, quad);
    }
  };

  [[gnu::always_inline]] Sums sum_run(const Index*& next, const Index* end) const {
    // A copy: by reference, the compiler must assume that the sums change it.
    const Block rows = block;
    const float* const columns = rows.data + column;
    const std::size_t edges_ahead = part.edges_ahead;
    Sums sums_of_run;
    for (; next < end; ++next) {
      prefetch_row(reinterpret_cast<std::uintptr_t>(columns) +
                   rows.place(static_cast<std::size_t>(next[edges_ahead])) * sizeof(float));
      sums_of_run.add(columns + rows.place(static_cast<std::size_t>(*next)));
    }
    return sums_of_run;
  }

  // Prefetches the cache lines of a row. Its place is a number: an index that is not verified yet may lead anywhere.
  [[gnu::always_inline]] static void prefetch_row(std::uintptr_t row) {
    constexpr std::size_t num_bytes = num_quads * sizeof(Quad);
    for (std::size_t byte = 0; byte < num_bytes; byte += line_bytes) {
      prefetch(row + byte);
    }
    // Rows begin at multiples of a quad and of their own length: only such lengths may reach into one more line.
    if constexpr (num_bytes % line_bytes == 3 * sizeof(Quad)) {
      prefetch(row + num_bytes - 1);
    }
  }

  // Into the second-level cache: the first-level cache has far fewer lines in flight, and waiting for one took most of
  // a pass.
  [[gnu::always_inline]] static void prefetch(std::uintptr_t place) {
    constexpr int for_reading = 0;
    constexpr int second_level = 2;
    __builtin_prefetch(reinterpret_cast<const void*>(place), for_reading, second_level);
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

template <typename Index, std::size_t num_quads>
void sum_columns(const ListPart& part, const Block& block, float* sums, std::size_t column,
                 InstructionSet instructions) {
  run_with(instructions, SumColumns<Index, num_quads>{part, block, sums, column});
}

template <typename Index, std::size_t... quads>
constexpr std::array<SumFunction, max_quads> functions_of(std::index_sequence<quads...> /*one less than quads*/) {
  return {&sum_columns<Index, quads + 1>...};
}

template <typename Index>
void sum_all_columns(const ListPart& part, const Block& block, float* sums, InstructionSet instructions) {
  static constexpr auto functions = functions_of<Index>(std::make_index_sequence<max_quads>());
  for (std::size_t column = 0; column < block.num_columns; column += max_quads * quad_floats) {
    const std::size_t num_quads = std::min((block.num_columns - column) / quad_floats, max_quads);
    functions[num_quads - 1](part, block, sums, column, instructions);
  }
}

}  // namespace

void sum_lists(const ListPart& part, const Block& block, float* sums, InstructionSet instructions) {
  if (part.index_bytes == 4) return sum_all_columns<std::uint32_t>(part, block, sums, instructions);
  sum_all_columns<std::int64_t>(part, block, sums, instructions);
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
