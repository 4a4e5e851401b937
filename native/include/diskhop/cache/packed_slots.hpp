// Where the rows of a packed batch lie: one slot a node, as its chunk stores them (stores/packed/chunk.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Rows of the table that need not be packed for each batch by itself.
struct UnpackedRows {
  std::uint64_t num_held;
  /// Where in memory each row of the table is held, below num_held, or -1. Empty: the first num_held rows are, in
  /// order.
  std::span<const std::int32_t> held_slots;
  /// Which row of the shared table each row of the table is, or -1. Empty: none is shared.
  std::span<const std::int64_t> shared_rows;
};

/// Fills the slots of a batch and lists what it brings along. A row held has its place in memory as slot; the others
/// come after num_held: first the shared ones in the order of shared_ids, then the packed ones in that of packed_ids.
/// Both lists ascend. `low` takes the lowest 16 bits of each slot, `high` (std::uint8_t or std::uint16_t) the others.
/// Takes up to 16 bytes a row. Throws std::out_of_range for an id outside the table of num_rows rows, and
/// std::invalid_argument where the batch brings other numbers of rows than the lists have room for, or where a slot has
/// more bits.
template <typename High>
void assign_slots(std::span<const std::int64_t> ids, std::uint64_t num_rows, const UnpackedRows& unpacked,
                  std::span<std::uint16_t> low, std::span<High> high, std::span<std::uint32_t> shared_ids,
                  std::span<std::uint32_t> packed_ids);

/// rows[i] = slot i, `shift` added to those from num_held on.
template <typename High>
void load_slots(std::span<const std::uint16_t> low, std::span<const High> high, std::int64_t num_held,
                std::int64_t shift, std::span<std::int64_t> rows);

}  // namespace diskhop
