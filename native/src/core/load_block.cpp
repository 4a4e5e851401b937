#include <algorithm>
#include <array>
#include <mutex>
#include <stdexcept>
#include <string>

#include "diskhop/propagate.hpp"
#include "instruction_sets.hpp"
#include "slot_ring.hpp"
#include "table_strips.hpp"
#include "tile_values.hpp"

namespace diskhop {
namespace {

constexpr std::size_t most_bad_rows = 5;  // that are named
constexpr std::size_t chunk_rows = 256;   // converted at a time, in the first-level cache

[[gnu::always_inline]] inline bool has_bad_value(const float* values, std::size_t count) {
  Words found{};
  for (std::size_t first = 0; first < count; first += vector_floats) {
    Words words{};
    std::memcpy(&words, values + first, std::min(count - first, vector_floats) * sizeof(float));
    found |= (words & 0x7f800000) == 0x7f800000;
  }
  std::uint32_t any = 0;
  for (std::size_t lane = 0; lane < vector_floats; ++lane) any |= found[lane];
  return any != 0;
}

// Rows of one tile go to their columns of the block, each times its scale. Notes rows with bad values.
struct SpreadTile {
  ValueFormat format;
  const std::byte* tile;
  std::size_t num_rows;
  const float* scales;  // none: 1
  const Matrix<float>& block;
  std::size_t first_row;
  std::size_t column;
  std::vector<std::int64_t>& bad_rows;

  [[gnu::always_inline]] void operator()() const {
    std::array<float, chunk_rows * tile_columns> values;
    for (std::size_t first = 0; first < num_rows; first += chunk_rows) {
      const std::size_t count = std::min(num_rows - first, chunk_rows);
      widen(format, tile + first * tile_columns * value_bytes(format), count * tile_columns, values.data());
      if (has_bad_value(values.data(), count * tile_columns)) note_bad_rows(values.data(), first, count);
      float* to = block.data + (first_row + first) * block.stride + column;
      for (std::size_t row = 0; row < count; ++row) {
        Quad quad = load_quad(values.data() + row * tile_columns);
        if (scales != nullptr) quad *= scales[first + row];
        store_quad(to + row * block.stride, quad);
      }
    }
  }

  void note_bad_rows(const float* values, std::size_t first, std::size_t count) const {
    for (std::size_t row = 0; row < count; ++row) {
      if (has_bad_value(values + row * tile_columns, tile_columns)) {
        bad_rows.push_back(static_cast<std::int64_t>(first_row + first + row));
      }
    }
  }
};

/// The bad rows of all strips: how many, and the first.
class BadRows {
 public:
  void add(std::vector<std::int64_t> rows) {
    if (rows.empty()) return;
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    const std::lock_guard lock(mutex_);
    num_rows_ += rows.size();
    first_.insert(first_.end(), rows.begin(), rows.end());
    std::ranges::sort(first_);
    first_.resize(std::min(first_.size(), most_bad_rows));
  }
  [[nodiscard]] std::uint64_t num_rows() const noexcept { return num_rows_; }
  [[nodiscard]] const std::vector<std::int64_t>& first() const noexcept { return first_; }

 private:
  std::mutex mutex_;
  std::uint64_t num_rows_ = 0;
  std::vector<std::int64_t> first_;
};

}  // namespace

LoadCounts load_block(const Streaming& streaming, const TableColumns& table, const File* scale,
                      const Matrix<float>& block) {
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
    return aligned_read(*scale, strip * sizes.num_rows * sizeof(float), rows_of(strip) * sizeof(float),
                        memory_of(slot) + tiles_bytes(table, num_tiles, sizes.num_rows));
  };
  const auto make_reads = [&](std::uint64_t strip, std::uint64_t slot) {
    std::vector<Op> ops =
        tile_ops(OperationKind::read, table, num_tiles, strip * sizes.num_rows, sizes.num_rows, memory_of(slot));
    if (scale != nullptr) ops.push_back(scales_read(strip, slot).op);
    return ops;
  };
  BadRows bad_rows;
  const auto work = [&](std::uint64_t strip, std::uint64_t slot) {
    const float* scales = nullptr;
    if (scale != nullptr) {
      const AlignedRead read = scales_read(strip, slot);
      scales = reinterpret_cast<const float*>(read.op.buffer + read.skipped);
    }
    std::vector<std::int64_t> found;
    for (std::uint64_t tile = 0; tile < num_tiles; ++tile) {
      const std::byte* values = memory_of(slot) + tile * tiles_bytes(table, 1, sizes.num_rows);
      run_with(streaming.instructions, SpreadTile{table.format, values, rows_of(strip), scales, block,
                                                  strip * sizes.num_rows, tile * tile_columns, found});
    }
    bad_rows.add(std::move(found));
  };
  const auto no_writes = [](std::uint64_t, std::uint64_t) { return std::vector<Op>{}; };
  const StreamCounts counts = stream_items(streaming, num_strips, sizes.num_slots, make_reads, work, no_writes);
  return {.stream = counts, .num_bad_rows = bad_rows.num_rows(), .bad_rows = bad_rows.first()};
}

}  // namespace diskhop
