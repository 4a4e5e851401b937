// Streamed lists by pieces: the turns that threads share, checked before their rows are read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/turns.hpp"
#include "diskhop/hops/streamed_lists.hpp"
#include "hops/neighbor_sums.hpp"

namespace diskhop {

/// Edges of one piece, and the rows that have them.
struct PieceTurn {
  std::size_t number = 0;
  std::size_t begin_row = 0;
  std::size_t end_row = 0;  // the first and the last row may have edges in other turns
  std::int64_t first_edge = 0;
  std::int64_t end_edge = 0;
  const std::byte* indices = nullptr;  // from first_edge on, and most_edges_ahead more
  bool has_head = false;               // the first row has edges in an earlier turn

  [[nodiscard]] std::size_t num_edges() const noexcept { return static_cast<std::size_t>(end_edge - first_edge); }
};

class ListPieces {
 public:
  /// Throws std::invalid_argument or DamagedListsError for lists that are none.
  ListPieces(const StreamedLists& lists, std::uint64_t num_sources, InstructionSet instructions);

  [[nodiscard]] std::size_t num_turns() const noexcept { return num_turns_; }
  /// Number of useful threads, at least one.
  [[nodiscard]] std::size_t num_lanes(unsigned num_threads) const noexcept;
  [[nodiscard]] PieceTurn turn(std::size_t number) const;

  /// Calls work(turn, lane) for every turn, in num_lanes(num_threads) threads; `work` must not throw. Throws
  /// DamagedListsError if edges come from nodes that are not among the sources; `work` is not called for their turns.
  template <typename Work>
  void share(unsigned num_threads, const Work& work) {
    share_turns(num_turns_, num_lanes(num_threads), [&](std::size_t number, std::size_t lane) {
      // Relaxed: a late value only means needless work.
      if (number > first_damaged_.load(std::memory_order_relaxed)) return;
      const PieceTurn next = turn(number);
      if (!check_sources(next)) return;
      work(next, lane);
    });
    throw_if_damaged();
  }

  /// Calls add(row, turn's number) for each turn that has a head, in order.
  template <typename Add>
  void for_each_head(const Add& add) const {
    for (std::size_t number = 1; number < num_turns_; ++number) {
      const PieceTurn next = turn(number);
      if (next.has_head) add(next.begin_row, number);
    }
  }

 private:
  [[nodiscard]] std::int64_t first_edge_of(std::size_t number) const;
  [[nodiscard]] bool check_sources(const PieceTurn& turn);
  void throw_if_damaged() const;
  void pad_last_turns();

  StreamedLists lists_;
  std::uint64_t num_sources_;
  InstructionSet instructions_;
  std::int64_t begin_edge_ = 0;  // edges in memory that belong to these rows
  std::int64_t end_edge_ = 0;
  std::size_t num_turns_ = 0;
  // Indices of the last turns, followed by the ones that are read ahead of them.
  std::vector<std::byte> padded_;
  std::int64_t first_padded_ = std::numeric_limits<std::int64_t>::max();  // number of an edge
  std::atomic<std::size_t> first_damaged_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace diskhop
