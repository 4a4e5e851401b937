// The neighbours of one hop that no cache holds: collected while lists are drawn from, then read all at once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
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
    for (std::size_t place = 0; place < lists_.size(); ++place) {
      // Draws lie in the order in which lists were drawn from.
      const std::size_t ahead = std::min(place + lists_ahead, lists_.size() - 1);
      __builtin_prefetch(&positions[lists_[ahead].first_edge]);
      const MissingList& list = lists_[place];
      if (list.count <= max_ranked) {
        place_by_rank(list, positions + list.first_edge, num_ids);
      } else {
        place_sorted(list, positions, num_ids);
      }
      num_ids += list.count;
    }
    const ReadCounts counts =
        reader.read({ids_.data(), num_ids}, {}, reinterpret_cast<std::byte*>(values_.data()), Priority::demand);
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
  static constexpr std::uint32_t max_ranked = 16;
  static constexpr std::size_t lists_ahead = 8;

  /// A few draws go to where as many are smaller: without a branch, which a sort would mispredict for every draw.
  void place_by_rank(const MissingList& list, const Word* positions, std::size_t first_id) {
    std::array<Word, max_ranked> draws;
    draws.fill(std::numeric_limits<Word>::max());
    std::copy_n(positions, list.count, draws.data());
    std::array<Word, max_ranked> ranks{};
    for (std::uint32_t other = 0; other < list.count; ++other) {
      const Word position = positions[other];
      for (std::uint32_t draw = 0; draw < max_ranked; ++draw) ranks[draw] += position < draws[draw] ? 1 : 0;
    }
    for (std::uint32_t draw = 0; draw < list.count; ++draw) {
      ids_[first_id + ranks[draw]] = static_cast<std::int64_t>(draws[draw]);
      edges_[first_id + ranks[draw]] = list.first_edge + draw;
    }
  }

  void place_sorted(const MissingList& list, const Word* positions, std::size_t first_id) {
    draws_.clear();
    for (std::uint32_t edge = list.first_edge; edge < list.first_edge + list.count; ++edge) {
      draws_.push_back({positions[edge], edge});
    }
    // A list that is taken whole ascends already.
    if (!std::ranges::is_sorted(draws_, {}, &Draw::position)) std::ranges::sort(draws_, {}, &Draw::position);
    for (const Draw& draw : draws_) {
      ids_[first_id] = static_cast<std::int64_t>(draw.position);
      edges_[first_id++] = draw.edge;
    }
  }

  std::vector<MissingList> lists_;
  std::size_t num_edges_ = 0;
  std::vector<Draw> draws_;  // of one list
  GrowingArray<std::int64_t> ids_;
  GrowingArray<std::uint32_t> edges_;
  GrowingArray<Index> values_;
};

}  // namespace diskhop
