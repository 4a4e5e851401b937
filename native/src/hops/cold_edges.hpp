// Cold edges of a pass: edges with a source that has no row in the block. Their values are in a file in the order of
// the edge array and arrive with the edges in a *window*: the block's spare rows, divided among the loads in flight. A
// cold edge's index is redirected to its row there, so the sums need no special case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "diskhop/hops/propagate.hpp"
#include "hops/slot_ring.hpp"

namespace diskhop {

class ColdWindow {
 public:
  /// Without cold edges nothing is read and nothing redirected. This window is part `number` of num_parts of the spare
  /// rows. Throws std::invalid_argument if sizes do not match.
  ColdWindow(const std::optional<ColdEdges>& cold, const ListFiles& lists, const Block& block, std::uint64_t number,
             std::uint64_t num_parts);

  [[nodiscard]] bool is_used() const noexcept { return cold_.has_value(); }
  /// Number of loads of this many pieces that fit, by the load with the most cold edges.
  [[nodiscard]] std::uint64_t slots_of(std::uint64_t load_pieces) const;
  /// Divides the window into slots for loads of this many pieces.
  void share_out(std::uint64_t load_pieces);

  /// Read of a load's cold edges, or none if it has none.
  [[nodiscard]] std::optional<Op> read(std::uint64_t load, std::uint64_t slot) const;
  /// Redirects a load's cold edges to their rows, which must be read. Returns the largest of its original indices,
  /// negative ones counting as the largest. Throws DamagedListsError if the number of cold edges differs from that of
  /// their values.
  std::uint64_t redirect(std::uint64_t load, std::uint64_t slot, std::byte* indices, std::uint64_t num_edges,
                         InstructionSet instructions) const;

 private:
  [[nodiscard]] std::uint64_t first_cold(std::uint64_t load) const;  // number of cold edges before the load
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
