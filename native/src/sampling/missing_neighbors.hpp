// Lists of one hop that are not cached: collected as they are reached, then drawn from and read in their order on disk.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/radix_sort.hpp"
#include "diskhop/rows/rows.hpp"
#include "diskhop/sampling/sampler.hpp"
#include "sampling/draws.hpp"
#include "sampling/growing_array.hpp"
#include "sampling/hop_lists.hpp"

namespace diskhop {

/// Draws from uncached lists. Edges are numbered as in their batch; an edge's position is its index in `indices`.
/// Threading: one thread at a time.
template <typename Index, typename Word>
class MissingNeighbors {
 public:
  /// Adds a list: edges first_edge .. first_edge + count - 1 will be draws from it.
  void add(Word number, std::size_t first_edge, std::size_t count) {
    if (count == 0) return;
    lists_.push_back({number, static_cast<std::uint32_t>(first_edge)});
    num_edges_ += count;
  }

  /// Draws from the added lists, waits for the drawn neighbours, and removes the lists. For each edge it writes the
  /// position, and the neighbour at its place counted from hop_begin. Hop: UntypedHop or TypedHop.
  template <typename Hop>
  ReadCounts read(const CachedTopology<Index>& topology, const Hop& hop, std::uint64_t hop_key, std::size_t hop_begin,
                  Word* positions, Index* neighbors) {
    // Lists do not overlap, so sorting them, and the draws within each list, sorts all positions: hundreds of
    // thousands of them need no sort as a whole.
    radix_sort(lists_, static_cast<unsigned>(std::bit_width(topology.indptr.size())),
               [](const MissingList& list) { return static_cast<std::uint64_t>(list.number); });
    auto fanout_of = hop.ascending_fanouts();
    ids_.reserve(num_edges_, 0);
    to_rows_.reserve(num_edges_, 0);
    std::size_t num_ids = 0;
    for (const auto [number, first_edge] : lists_) {
      const auto begin = static_cast<Word>(topology.indptr[number]);
      const NeighborList<Word> list{number, begin, static_cast<Word>(topology.indptr[number + 1]) - begin};
      const std::uint64_t fanout = fanout_of(number);
      const std::size_t count = std::min<std::uint64_t>(fanout, list.degree);
      draws_.reserve(count + max_draw_overrun, 0);
      draw_list(list, fanout, hop_key, draws_.data());
      std::copy_n(draws_.data(), count, positions + first_edge);
      if (count <= max_ranked) {
        place_by_rank(count, first_edge - hop_begin, num_ids);
      } else {
        place_sorted(count, first_edge - hop_begin, num_ids);
      }
      num_ids += count;
    }
    ReadCounts counts;
    if (num_ids > 0) {
      const auto request = topology.scan->join({ids_.data(), num_ids}, {to_rows_.data(), num_ids},
                                               reinterpret_cast<std::byte*>(neighbors));
      counts = topology.scan->wait(request).reads;
    }
    clear();
    return counts;
  }

  void clear() {
    lists_.clear();
    num_edges_ = 0;
  }

 private:
  struct MissingList {
    Word number;
    std::uint32_t first_edge;
  };
  struct PlacedDraw {
    Word position;
    std::int64_t place;
  };
  static constexpr std::size_t max_ranked = 16;

  /// Places each draw by the number of smaller ones: no branches, which a sort would mispredict for every draw.
  void place_by_rank(std::size_t count, std::size_t first_place, std::size_t first_id) {
    std::array<Word, max_ranked> draws;
    draws.fill(std::numeric_limits<Word>::max());
    std::copy_n(draws_.data(), count, draws.data());
    std::array<Word, max_ranked> ranks{};
    for (std::size_t other = 0; other < count; ++other) {
      const Word position = draws_[other];
      for (std::size_t draw = 0; draw < max_ranked; ++draw) ranks[draw] += position < draws[draw] ? 1 : 0;
    }
    for (std::size_t draw = 0; draw < count; ++draw) {
      ids_[first_id + ranks[draw]] = static_cast<std::int64_t>(draws[draw]);
      to_rows_[first_id + ranks[draw]] = static_cast<std::int64_t>(first_place + draw);
    }
  }

  void place_sorted(std::size_t count, std::size_t first_place, std::size_t first_id) {
    placed_draws_.clear();
    for (std::size_t draw = 0; draw < count; ++draw) {
      placed_draws_.push_back({draws_[draw], static_cast<std::int64_t>(first_place + draw)});
    }
    // A list that is taken whole is sorted already.
    if (!std::ranges::is_sorted(placed_draws_, {}, &PlacedDraw::position)) {
      std::ranges::sort(placed_draws_, {}, &PlacedDraw::position);
    }
    for (const PlacedDraw& draw : placed_draws_) {
      ids_[first_id] = static_cast<std::int64_t>(draw.position);
      to_rows_[first_id++] = draw.place;
    }
  }

  std::vector<MissingList> lists_;
  std::size_t num_edges_ = 0;
  GrowingArray<Word> draws_;  // of one list
  std::vector<PlacedDraw> placed_draws_;
  GrowingArray<std::int64_t> ids_;
  GrowingArray<std::int64_t> to_rows_;
};

}  // namespace diskhop
