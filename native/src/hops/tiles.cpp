#include "diskhop/hops/tiles.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace diskhop {
namespace {

// Rows copied through all tiles together: in each tile they are a run of cache lines, and whole rows stay in the cache
// while their parts arrive.
constexpr std::uint64_t block_rows = 64;
// Copying fewer bytes per thread takes less time than starting another thread.
constexpr std::uint64_t min_thread_bytes = 128 << 10;
// Parts of 16 bytes that fill a line: tiles are a power of two apart, and more of them at once would share cache sets.
constexpr std::uint64_t tiles_at_once = 4;

/// Calls do_block(begin, end) for blocks of 0 .. count - 1.
template <typename DoBlock>
void for_blocks(std::uint64_t count, std::uint64_t row_bytes, unsigned num_threads, DoBlock do_block) {
  std::atomic<std::uint64_t> next{0};
  const auto do_blocks = [&] {
    while (true) {
      // Relaxed: blocks are disjoint, and joining the threads publishes their results.
      const std::uint64_t begin = next.fetch_add(block_rows, std::memory_order_relaxed);
      if (begin >= count) return;
      do_block(begin, std::min(count, begin + block_rows));
    }
  };
  const std::uint64_t useful_threads = 1 + count * row_bytes / min_thread_bytes;
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < std::min<std::uint64_t>(num_threads, useful_threads)) helpers.emplace_back(do_blocks);
  } catch (const std::system_error&) {  // no more threads available: the running ones do all blocks
  }
  do_blocks();
}

/// Calls copy(part of a row, part of a tile's row, bytes), with bytes as a compile-time constant for whole parts.
/// row_at(i) and place_at(i) return where a row is, and which row of the tiles it is.
template <std::uint64_t part_bytes, typename RowAt, typename PlaceAt, typename TilesPointer, typename Copy>
void copy_parts(std::uint64_t begin, std::uint64_t end, const Tiling& tiling, TilesPointer tiles, RowAt row_at,
                PlaceAt place_at, Copy copy) {
  const std::uint64_t whole_bytes = part_bytes == 0 ? tiling.tile_row_bytes : part_bytes;
  const std::uint64_t num_whole = tiling.row_bytes / whole_bytes;
  for (std::uint64_t first = 0; first < num_whole; first += tiles_at_once) {
    const std::uint64_t last = std::min(num_whole, first + tiles_at_once);
    for (std::uint64_t index = begin; index < end; ++index) {
      auto row = row_at(index) + first * whole_bytes;
      auto part = tiles + first * tiling.tile_bytes() + place_at(index) * whole_bytes;
      for (std::uint64_t tile = first; tile < last; ++tile) {
        copy(row, part, whole_bytes);
        row += whole_bytes;
        part += tiling.tile_bytes();
      }
    }
  }
  const std::uint64_t rest_bytes = tiling.row_bytes - num_whole * whole_bytes;
  if (rest_bytes == 0) return;
  for (std::uint64_t index = begin; index < end; ++index) {
    copy(row_at(index) + num_whole * whole_bytes,
         tiles + num_whole * tiling.tile_bytes() + place_at(index) * whole_bytes, rest_bytes);
  }
}

template <typename... Arguments>
void copy_sized_parts(std::uint64_t tile_row_bytes, Arguments... arguments) {
  switch (tile_row_bytes) {
    case 8:
      return copy_parts<8>(arguments...);
    case 16:
      return copy_parts<16>(arguments...);
    default:
      return copy_parts<0>(arguments...);
  }
}

void check_tiling(const Tiling& tiling) {
  if (tiling.row_bytes == 0 || tiling.tile_row_bytes == 0) {
    throw std::invalid_argument("rows and tiles must have at least 1 byte per row, got " +
                                std::to_string(tiling.row_bytes) + " and " + std::to_string(tiling.tile_row_bytes));
  }
}

std::uint64_t number_at(std::span<const std::int64_t> numbers, std::uint64_t index) {
  return numbers.empty() ? index : static_cast<std::uint64_t>(numbers[index]);
}

void check_numbers(std::span<const std::int64_t> numbers, std::uint64_t count, std::uint64_t num_rows,
                   const char* name) {
  if (!numbers.empty() && numbers.size() != count) {
    throw std::invalid_argument(std::string(name) + ": " + std::to_string(numbers.size()) + " rows given for " +
                                std::to_string(count) + " copies");
  }
  // Of 0, 1, 2 ... the last is the largest.
  for (std::uint64_t index = numbers.empty() && count > 0 ? count - 1 : 0; index < count; ++index) {
    if (number_at(numbers, index) >= num_rows) {
      throw std::out_of_range("row " + std::to_string(static_cast<std::int64_t>(number_at(numbers, index))) +
                              " is outside " + name + " of " + std::to_string(num_rows) + " rows");
    }
  }
}

}  // namespace

void tile_rows(const std::byte* rows, std::uint64_t count, const Tiling& tiling, std::byte* tiles,
               unsigned num_threads) {
  check_tiling(tiling);
  if (count > tiling.num_rows) {
    throw std::invalid_argument("tiles of " + std::to_string(tiling.num_rows) + " rows cannot hold " +
                                std::to_string(count));
  }
  for_blocks(count, tiling.row_bytes, num_threads, [&](std::uint64_t begin, std::uint64_t end) {
    copy_sized_parts(
        tiling.tile_row_bytes, begin, end, tiling, tiles,
        [&](std::uint64_t index) { return rows + index * tiling.row_bytes; }, [](std::uint64_t index) { return index; },
        [](const std::byte* row, std::byte* part, std::uint64_t num_bytes) { std::memcpy(part, row, num_bytes); });
  });
  const std::uint64_t num_tiles = tiling.num_tiles();
  const std::uint64_t rest_bytes = tiling.row_bytes % tiling.tile_row_bytes;
  for (std::uint64_t tile = 0; tile < num_tiles; ++tile) {
    std::byte* const begin = tiles + tile * tiling.tile_bytes();
    if (rest_bytes != 0 && tile + 1 == num_tiles) {
      for (std::uint64_t row = 0; row < count; ++row) {
        std::memset(begin + row * tiling.tile_row_bytes + rest_bytes, 0, tiling.tile_row_bytes - rest_bytes);
      }
    }
    std::memset(begin + count * tiling.tile_row_bytes, 0, (tiling.num_rows - count) * tiling.tile_row_bytes);
  }
}

void untile_rows(const std::byte* tiles, const Tiling& tiling, std::span<const std::int64_t> rows, std::byte* out,
                 std::uint64_t num_out_rows, std::span<const std::int64_t> to_rows, std::uint64_t count,
                 unsigned num_threads) {
  check_tiling(tiling);
  check_numbers(rows, count, tiling.num_rows, "tiles");
  check_numbers(to_rows, count, num_out_rows, "out");
  for_blocks(count, tiling.row_bytes, num_threads, [&](std::uint64_t begin, std::uint64_t end) {
    copy_sized_parts(
        tiling.tile_row_bytes, begin, end, tiling, tiles,
        [&](std::uint64_t index) { return out + number_at(to_rows, index) * tiling.row_bytes; },
        [&](std::uint64_t index) { return number_at(rows, index); },
        [](std::byte* row, const std::byte* part, std::uint64_t num_bytes) { std::memcpy(row, part, num_bytes); });
  });
}

}  // namespace diskhop
