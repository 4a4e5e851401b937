#include <algorithm>
#include <array>

#include "diskhop/propagate.hpp"
#include "instruction_sets.hpp"
#include "slot_ring.hpp"
#include "table_strips.hpp"
#include "tile_values.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t chunk_values = 1024;  // at a time, in the first-level cache

struct CombineStrip {
  const TableColumns& first;
  float first_scale;
  const TableColumns& second;
  float second_scale;
  const TableColumns& out;
  const std::byte* first_values;
  const std::byte* second_values;
  std::byte* out_values;
  std::uint64_t num_values;

  [[gnu::always_inline]] void operator()() const {
    std::array<float, chunk_values> sums;
    std::array<float, chunk_values> added;
    for (std::uint64_t begin = 0; begin < num_values; begin += chunk_values) {
      const std::uint64_t count = std::min(num_values - begin, chunk_values);
      widen(first.format, first_values + begin * value_bytes(first.format), count, sums.data());
      widen(second.format, second_values + begin * value_bytes(second.format), count, added.data());
      for (std::uint64_t i = 0; i < count; ++i) sums[i] = sums[i] * first_scale + added[i] * second_scale;
      narrow(out.format, sums.data(), count, out_values + begin * value_bytes(out.format));
    }
  }
};

}  // namespace

StreamCounts combine_tables(const Streaming& streaming, std::uint64_t num_rows, const TableColumns& first,
                            float first_scale, const TableColumns& second, float second_scale,
                            const TableColumns& out) {
  const std::uint64_t num_tiles = out.num_tiles;
  for (const TableColumns* table : {&first, &second, &out}) {
    check_columns("tables that are combined", *table, num_tiles * tile_columns);
  }
  const auto bytes_of = [&](const TableColumns& table, std::uint64_t strip_rows) {
    return tiles_bytes(table, num_tiles, strip_rows);
  };
  const auto slot_bytes = [&](std::uint64_t strip_rows) {
    return bytes_of(first, strip_rows) + bytes_of(second, strip_rows) + bytes_of(out, strip_rows);
  };
  const StripSizes sizes = choose_strips("combining tables", streaming.staging.size(), slot_bytes);
  const std::uint64_t num_strips = (num_rows + group_rows - 1) / group_rows * (group_rows / sizes.num_rows);
  const auto first_of = [&](std::uint64_t slot) {
    return streaming.staging.data() + slot * slot_bytes(sizes.num_rows);
  };
  const auto second_of = [&](std::uint64_t slot) { return first_of(slot) + bytes_of(first, sizes.num_rows); };
  const auto out_of = [&](std::uint64_t slot) { return second_of(slot) + bytes_of(second, sizes.num_rows); };
  const auto make_reads = [&](std::uint64_t strip, std::uint64_t slot) {
    const std::uint64_t row = strip * sizes.num_rows;
    std::vector<Op> ops = tile_ops(OperationKind::read, first, num_tiles, row, sizes.num_rows, first_of(slot));
    const std::vector<Op> more = tile_ops(OperationKind::read, second, num_tiles, row, sizes.num_rows, second_of(slot));
    ops.insert(ops.end(), more.begin(), more.end());
    return ops;
  };
  const auto work = [&](std::uint64_t /*strip*/, std::uint64_t slot) {
    run_with(streaming.instructions,
             CombineStrip{first, first_scale, second, second_scale, out, first_of(slot), second_of(slot), out_of(slot),
                          num_tiles * tile_columns * sizes.num_rows});
  };
  const auto make_writes = [&](std::uint64_t strip, std::uint64_t slot) {
    return tile_ops(OperationKind::write, out, num_tiles, strip * sizes.num_rows, sizes.num_rows, out_of(slot));
  };
  return stream_items(streaming, num_strips, sizes.num_slots, make_reads, work, make_writes);
}

}  // namespace diskhop
