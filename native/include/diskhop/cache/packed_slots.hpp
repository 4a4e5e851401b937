// Slots of a packed batch: one per node, as its chunk stores them (stores/packed/chunk.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace diskhop {

/// Rows of the table that are not packed with each batch.
struct UnpackedRows {
  std::uint64_t num_resident;
  /// Place in memory of each row of the table, below num_resident, or -1. Empty: rows 0 .. num_resident - 1, in order.
  std::span<const std::int32_t> resident_slots;
  /// Row of the shared table of each row of the table, or -1. Empty: none is shared.
  std::span<const std::int64_t> shared_rows;
};

/// Fills the slots of a batch and lists the rows that it needs. A resident row's slot is its place in memory. The
/// others follow from num_resident on: first shared rows in the order of shared_ids, then packed rows in that of
/// packed_ids. Both lists ascend. `low` takes the lowest 16 bits of each slot, `high` (std::uint8_t or std::uint16_t)
/// the rest. Memory: up to 16 bytes per row. Throws std::out_of_range for an id outside the table of num_rows rows,
/// std::invalid_argument if the lists have other lengths than the batch needs, or a slot has more bits.
template <typename High>
void assign_slots(std::span<const std::int64_t> ids, std::uint64_t num_rows, const UnpackedRows& unpacked,
                  std::span<std::uint16_t> low, std::span<High> high, std::span<std::uint32_t> shared_ids,
                  std::span<std::uint32_t> packed_ids);

/// Sets rows[i] to slot i, plus `shift` for slots from num_resident on.
template <typename High>
void load_slots(std::span<const std::uint16_t> low, std::span<const High> high, std::int64_t num_resident,
                std::int64_t shift, std::span<std::int64_t> rows);

}  // namespace diskhop
