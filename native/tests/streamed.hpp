// Lists in memory that are streamed in all supported ways: pieces, rows, threads and instruction sets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "diskhop/hops/streamed_lists.hpp"

namespace diskhop::testing {

struct Lists {
  Lists(const std::vector<std::int64_t>& lengths, std::uint64_t num_sources, unsigned seed) : indptr{0} {
    for (const std::int64_t length : lengths) indptr.push_back(indptr.back() + length);
    std::mt19937_64 random(seed);
    for (std::int64_t edge = 0; edge < indptr.back(); ++edge) {
      indices.push_back(static_cast<std::uint32_t>(random() % num_sources));
    }
  }

  [[nodiscard]] std::size_t num_rows() const { return indptr.size() - 1; }

  /// Rows [begin_row, end_row) with edges [first_edge, end_edge) in memory.
  [[nodiscard]] StreamedLists part(std::size_t begin_row, std::size_t end_row, std::int64_t first_edge,
                                   std::int64_t end_edge) const {
    return {.indptr = std::span(indptr).subspan(begin_row, end_row - begin_row + 1),
            .indices = reinterpret_cast<const std::byte*>(indices.data() + first_edge),
            .first_edge = first_edge,
            .num_edges = end_edge - first_edge};
  }

  std::vector<std::int64_t> indptr;
  std::vector<std::uint32_t> indices;
};

/// Normal values, for a few columns of all sources.
struct Rows {
  Rows(std::uint64_t num_rows, std::uint64_t columns, unsigned seed)
      : num_columns(columns), values(num_rows * (columns + tile_columns)) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : values) value = normal(random);
    block = block_in(values, num_rows, columns);
  }

  std::uint64_t num_columns;
  std::vector<float> values;
  Block block;
};

/// A way to compute. Calls have at most call_pieces pieces and call_rows rows.
struct Division {
  std::int64_t call_pieces = 1000;
  std::size_t call_rows = 100'000;
  unsigned num_threads = 1;
  unsigned index_bytes = 4;
  InstructionSet instructions = best_instruction_set();
};

inline std::vector<Division> divisions() {
  std::vector<Division> all{{}, {.num_threads = 3}, {.call_pieces = 1}, {.call_pieces = 3, .num_threads = 2}};
  all.push_back({.call_rows = 1000, .num_threads = 3});
  all.push_back({.call_pieces = 2, .call_rows = 700, .num_threads = 3, .index_bytes = 8});
  for (const InstructionSet instructions : supported_instruction_sets()) {
    all.push_back({.num_threads = 2, .index_bytes = 8, .instructions = instructions});
  }
  return all;
}

/// Calls visit(lists, first row) for each call, in order. The indices of each lie in memory of exactly their size.
template <typename Visit>
void for_each_call(const Lists& lists, const Division& division, const Visit& visit) {
  const std::int64_t call_edges = division.call_pieces * static_cast<std::int64_t>(piece_edges);
  for (std::size_t row = 0; row < lists.num_rows(); row += division.call_rows) {
    const std::size_t end_row = std::min(lists.num_rows(), row + division.call_rows);
    const std::int64_t end = lists.indptr[end_row];
    for (std::int64_t edge = lists.indptr[row]; edge < end;) {
      const std::int64_t next = std::min(end, (edge / call_edges + 1) * call_edges);
      StreamedLists part = lists.part(row, end_row, edge, next);
      const std::vector<std::uint32_t> narrow(lists.indices.begin() + edge, lists.indices.begin() + next);
      const std::vector<std::int64_t> wide(narrow.begin(), narrow.end());
      part.index_bytes = division.index_bytes;
      part.indices = division.index_bytes == 4 ? reinterpret_cast<const std::byte*>(narrow.data())
                                               : reinterpret_cast<const std::byte*>(wide.data());
      visit(part, row);
      edge = next;
    }
  }
}

/// Calls visit(begin, end) for the parts of a row's list that lie in one piece.
template <typename Visit>
void for_each_piece(const Lists& lists, std::size_t row, const Visit& visit) {
  const auto edges = static_cast<std::int64_t>(piece_edges);
  for (std::int64_t edge = lists.indptr[row]; edge < lists.indptr[row + 1];) {
    const std::int64_t end = std::min(lists.indptr[row + 1], (edge / edges + 1) * edges);
    visit(edge, end);
    edge = end;
  }
}

inline std::vector<float> without_padding(const std::vector<float>& memory, std::size_t num_columns,
                                          std::size_t stride) {
  std::vector<float> values;
  for (std::size_t row = 0; row < memory.size(); row += stride) {
    values.insert(values.end(), memory.begin() + static_cast<std::ptrdiff_t>(row),
                  memory.begin() + static_cast<std::ptrdiff_t>(row + num_columns));
  }
  return values;
}

}  // namespace diskhop::testing
