// The neighbours of one hop that no cache holds: collected while lists are drawn from, then read all at once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "diskhop/rows.hpp"
#include "draws.hpp"
#include "growing_array.hpp"
#include "radix_sort.hpp"

namespace diskhop {

/// Edges are numbered as in their batch; an edge's position is its place in `indices`. Threading: one thread at a time.
template <typename Index, typename Word>
class MissingNeighbors {
 public:
  /// Edges first_edge .. first_edge + count - 1 are draws from this list.
  void add(const NeighborList<Word>& list, std::size_t first_edge, std::size_t count) {
    if (count == 0) return;
    lists_.push_back({list.begin, static_cast<std::uint32_t>(first_edge), static_cast<std::uint32_t>(count)});
    num_edges_ += count;
  }

  /// Reads what was added, calls store(edge, neighbour) for each, and forgets it. The reader's rows are `indices`.
  template <typename Store>
  ReadCounts read(const RowReader& reader, const Word* positions, Store store) {
    ids_.reserve(num_edges_, 0);
    edges_.reserve(num_edges_, 0);
    values_.reserve(num_edges_, 0);
    // Lists do not overlap, so that positions ascend where lists do and, in each, its draws: some hundred thousand
    // positions need no sort as a whole.
    radix_sort(lists_, static_cast<unsigned>(std::bit_width(reader.layout().num_rows)),
               [](const MissingList& list) { return static_cast<std::uint64_t>(list.begin); });
    std::size_t num_ids = 0;
    for (const MissingList& list : lists_) {
      draws_.clear();
      for (std::uint32_t edge = list.first_edge; edge < list.first_edge + list.count; ++edge) {
        draws_.push_back({positions[edge], edge});
      }
      std::ranges::sort(draws_, {}, &Draw::position);
      for (const Draw& draw : draws_) {
        ids_[num_ids] = static_cast<std::int64_t>(draw.position);
        edges_[num_ids++] = draw.edge;
      }
    }
    const ReadCounts counts =
        reader.read({ids_.data(), num_ids}, reinterpret_cast<std::byte*>(values_.data()), Priority::demand);
    for (std::size_t id = 0; id < num_ids; ++id) store(edges_[id], values_[id]);
    clear();
    return counts;
  }

  void clear() {
    lists_.clear();
    num_edges_ = 0;
  }
  [[nodiscard]] std::size_t num_bytes() const {
    // Twice: lists are sorted by way of a copy.
    return 2 * lists_.capacity() * sizeof(MissingList) + draws_.capacity() * sizeof(Draw) + ids_.num_bytes() +
           edges_.num_bytes() + values_.num_bytes();
  }

 private:
  struct MissingList {
    Word begin;
    std::uint32_t first_edge;
    std::uint32_t count;
  };
  struct Draw {
    Word position;
    std::uint32_t edge;
  };

  std::vector<MissingList> lists_;
  std::size_t num_edges_ = 0;
  std::vector<Draw> draws_;  // of one list
  GrowingArray<std::int64_t> ids_;
  GrowingArray<std::uint32_t> edges_;
  GrowingArray<Index> values_;
};

}  // namespace diskhop
