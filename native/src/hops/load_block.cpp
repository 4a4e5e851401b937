#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "diskhop/hops/propagate.hpp"
#include "hops/slot_ring.hpp"
#include "hops/table_strips.hpp"
#include "hops/tile_values.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

constexpr std::size_t line_bytes = 64;
constexpr std::size_t chunk_rows = 256;  // converted at a time, in the first-level cache

// Copies rows of one tile to their columns of the block, each times its scale.
template <std::size_t lanes>
struct SpreadTile {
  ValueFormat format;
  const std::byte* tile;
  std::size_t num_rows;
  const float* scales;  // null: all 1
  const Block& block;
  std::size_t first_row;
  std::size_t column;

  [[gnu::always_inline]] void operator()() const {
    std::array<float, chunk_rows * tile_columns> values;
    for (std::size_t first = 0; first < num_rows; first += chunk_rows) {
      const std::size_t count = std::min(num_rows - first, chunk_rows);
      widen<lanes>(format, tile + first * tile_columns * value_bytes(format), count * tile_columns, values.data());
      for (std::size_t row = 0; row < count; ++row) {
        Quad quad = load_quad(values.data() + row * tile_columns);
        if (scales != nullptr) quad *= scales[first + row];
        store_quad(block.row(first_row + first + row) + column, quad);
      }
    }
  }
};

}  // namespace

Block block_in(std::span<float> memory, std::uint64_t num_rows, std::uint64_t num_columns) {
  const std::uint64_t num_values = num_rows * num_columns;
  if (num_columns % tile_columns != 0 || memory.size() < num_values) {
    throw std::invalid_argument("a block of " + std::to_string(num_rows) + " rows of " + std::to_string(num_columns) +
                                " values does not fit " + std::to_string(memory.size()));
  }
  const bool straddles = num_columns * sizeof(float) % line_bytes == line_bytes - tile_columns * sizeof(float);
  const std::uint64_t room = (memory.size() - num_values) / tile_columns;
  const std::uint64_t row_tiles = std::max<std::uint64_t>(num_columns / tile_columns, 1);
  return {.data = memory.data(),
          .num_rows = num_rows,
          .num_columns = num_columns,
          .num_padded = straddles ? std::min(num_rows, room) : 0,
          .num_spare = straddles ? 0 : room / row_tiles};
}

StreamCounts load_block(const Streaming& streaming, const TableColumns& table, const File* scale, const Block& block,
                        std::uint64_t first_row) {
  if (first_row % group_rows != 0) throw std::invalid_argument("loading begins with a group's first row");
  check_columns("block", table, block.num_columns);
  const std::uint64_t num_tiles = block.num_columns / tile_columns;
  const auto slot_bytes = [&](std::uint64_t strip_rows) {
    return tiles_bytes(table, num_tiles, strip_rows) + aligned_read_bytes(strip_rows * sizeof(float));
  };
  const StripSizes sizes = choose_strips("loading", streaming.staging.size(), slot_bytes);
  const std::uint64_t num_strips = (block.num_rows + sizes.num_rows - 1) / sizes.num_rows;

  const auto memory_of = [&](std::uint64_t slot) {
    return streaming.staging.data() + slot * slot_bytes(sizes.num_rows);
  };
  const auto rows_of = [&](std::uint64_t strip) {
    return std::min<std::uint64_t>(sizes.num_rows, block.num_rows - strip * sizes.num_rows);
  };
  const auto scales_read = [&](std::uint64_t strip, std::uint64_t slot) {
    return aligned_read(*scale, (first_row + strip * sizes.num_rows) * sizeof(float), rows_of(strip) * sizeof(float),
                        memory_of(slot) + tiles_bytes(table, num_tiles, sizes.num_rows));
  };
  const auto make_reads = [&](std::uint64_t strip, std::uint64_t slot) {
    std::vector<Op> ops = tile_ops(OperationKind::read, table, num_tiles, first_row + strip * sizes.num_rows,
                                   sizes.num_rows, memory_of(slot));
    if (scale != nullptr) ops.push_back(scales_read(strip, slot).op);
    return ops;
  };
  const auto work = [&](std::uint64_t strip, std::uint64_t slot) {
    const float* scales = nullptr;
    if (scale != nullptr) {
      const AlignedRead read = scales_read(strip, slot);
      scales = reinterpret_cast<const float*>(read.op.buffer + read.skipped);
    }
    for (std::uint64_t tile = 0; tile < num_tiles; ++tile) {
      const std::byte* values = memory_of(slot) + tile * tiles_bytes(table, 1, sizes.num_rows);
      with_instructions(streaming.instructions, [&](auto set) {
        set.run(SpreadTile<set.lanes>{table.format, values, rows_of(strip), scales, block, strip * sizes.num_rows,
                                      tile * tile_columns});
      });
    }
  };
  const auto no_writes = [](std::uint64_t, std::uint64_t) { return std::vector<Op>{}; };
  return stream_items(streaming, num_strips, sizes.num_slots, make_reads, work, no_writes);
}

}  // namespace diskhop
