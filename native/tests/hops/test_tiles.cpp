#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/tiles.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

std::vector<std::byte> count_up(std::uint64_t num_bytes) {
  std::vector<std::byte> bytes(num_bytes);
  for (std::uint64_t index = 0; index < num_bytes; ++index) bytes[index] = static_cast<std::byte>(index * 7 + 1);
  return bytes;
}

/// Buffers have the exact size, so that sanitizers see every byte out of bounds.
void test_rows_come_back() {
  for (const std::uint64_t part_bytes : {8, 16, 5}) {
    for (const std::uint64_t row_bytes : {3, 16, 40, 44}) {
      for (const unsigned num_threads : {1u, 3u}) {
        const std::uint64_t count = 10000;  // enough for several threads
        const Tiling tiling{.num_rows = count + 3, .row_bytes = row_bytes, .tile_row_bytes = part_bytes};
        const auto rows = count_up(count * row_bytes);
        std::vector<std::byte> tiles(tiling.num_tiles() * tiling.tile_bytes(), std::byte{9});
        tile_rows(rows.data(), count, tiling, tiles.data(), num_threads);
        check(std::all_of(tiles.end() - static_cast<std::ptrdiff_t>(3 * part_bytes), tiles.end(),
                          [](std::byte byte) { return byte == std::byte{0}; }),
              "what rows do not fill is zeros");
        std::vector<std::byte> out(rows.size());
        untile_rows(tiles.data(), tiling, {}, out.data(), count, {}, count, num_threads);
        check(out == rows, "rows come back");
        const std::vector<std::int64_t> from{9999, 0};
        const std::vector<std::int64_t> to{0, 9999};
        untile_rows(tiles.data(), tiling, from, out.data(), count, to, 2, num_threads);
        check(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(row_bytes),
                         rows.end() - static_cast<std::ptrdiff_t>(row_bytes)),
              "a row goes where it is sent");
      }
    }
  }
}

void test_rows_outside_are_refused() {
  const Tiling tiling{.num_rows = 4, .row_bytes = 8, .tile_row_bytes = 8};
  std::vector<std::byte> tiles(32);
  std::vector<std::byte> out(32);
  const std::vector<std::int64_t> outside{4};
  check_throws<std::out_of_range>([&] { untile_rows(tiles.data(), tiling, outside, out.data(), 4, {}, 1, 1); },
                                  "a row that tiles do not have");
  check_throws<std::out_of_range>([&] { untile_rows(tiles.data(), tiling, {}, out.data(), 4, outside, 1, 1); },
                                  "a row that out does not have");
  check_throws<std::invalid_argument>([&] { tile_rows(out.data(), 5, tiling, tiles.data(), 1); }, "too many rows");
}

}  // namespace

int main() {
  test_rows_come_back();
  test_rows_outside_are_refused();
}
