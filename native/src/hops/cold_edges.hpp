// Cold edges of a pass: those whose source has no row in the block. Their values lie in a file in the order of the edge
// array and come with the edges, to a *window*: the room that the block's memory has behind its rows, shared out to the
// loads under way. A cold edge's index is redirected to its row there, so that the sums know of none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "diskhop/hops/propagate.hpp"
#include "hops/slot_ring.hpp"

namespace diskhop {

class ColdWindow {
 public:
  /// No cold edges: nothing is read and nothing redirected. Of the room, part `number` of num_parts is this window's.
  /// Throws std::invalid_argument where they do not fit together.
  ColdWindow(const std::optional<ColdEdges>& cold, const ListFiles& lists, const Block& block, std::uint64_t number,
             std::uint64_t num_parts);

  [[nodiscard]] bool is_used() const noexcept { return cold_.has_value(); }
  /// How many loads of so many pieces it has room for, from the one that has the most cold edges.
  [[nodiscard]] std::uint64_t slots_of(std::uint64_t load_pieces) const;
  /// Slots are of loads of so many pieces from now on.
  void share_out(std::uint64_t load_pieces);

  /// Of a load's cold edges; none where it has none.
  [[nodiscard]] std::optional<Op> read(std::uint64_t load, std::uint64_t slot) const;
  /// Redirects a load's cold edges to their rows, which are read. The largest of its indices, as it was; negative ones
  /// are the largest of all. Throws DamagedListsError where there are not as many cold edges as the values are of.
  std::uint64_t redirect(std::uint64_t load, std::uint64_t slot, std::byte* indices, std::uint64_t num_edges,
                         InstructionSet instructions) const;

 private:
  [[nodiscard]] std::uint64_t first_cold(std::uint64_t load) const;  // its first edge's number among these
  [[nodiscard]] std::uint64_t slot_rows(std::uint64_t load_pieces) const;
  [[nodiscard]] AlignedRead aligned(std::uint64_t load, std::uint64_t slot) const;

  std::optional<ColdEdges> cold_;
  const ListFiles& lists_;
  const Block& block_;
  std::uint64_t row_bytes_;
  std::uint64_t num_rows_ = 0;
  std::uint64_t first_row_ = 0;  // in the block
  std::uint64_t load_pieces_ = 1;
  std::uint64_t slot_rows_ = 0;
};

}  // namespace diskhop
