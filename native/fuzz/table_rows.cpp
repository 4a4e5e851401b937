// Tiles of hop tables, and slots of packed chunks.
#include "diskhop/cache/packed_slots.hpp"
#include "diskhop/hops/tiles.hpp"
#include "diskhop/io/content_sum.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

void untile(Input& input) {
  const Tiling tiling{.num_rows = 1 + input.below(32), .row_bytes = input.below(64), .tile_row_bytes = input.below(32)};
  const std::size_t num_tiles = tiling.tile_row_bytes == 0 ? 0 : tiling.num_tiles();
  const std::vector<std::byte> tiles(num_tiles * tiling.num_rows * tiling.tile_row_bytes, std::byte{3});
  const std::size_t count = input.below(40);
  const std::vector<std::int64_t> rows =
      input.flag() ? input.ids<std::int64_t>(count, tiling.num_rows) : std::vector<std::int64_t>{};
  std::vector<std::int64_t> to_rows;
  if (input.flag()) {
    for (std::size_t i = count; i > 0; --i) to_rows.push_back(static_cast<std::int64_t>(i - 1));
    if (input.flag() && count > 0) to_rows[input.below(count)] = input.take<std::int64_t>();
  }
  std::vector<std::byte> out(count * tiling.row_bytes);
  untile_rows(tiles.data(), tiling, rows, out.data(), count, to_rows, count, 1);
  static_cast<void>(page_sums(out, input.take<std::uint64_t>()));
  std::vector<std::byte> again(tiles.size());
  tile_rows(out.data(), count, tiling, again.data(), 1);
}

template <typename High>
void pack(Input& input) {
  const std::uint64_t num_rows = input.number(64);
  const std::vector<std::int64_t> ids = input.ids<std::int64_t>(input.below(40), 64);
  const std::vector<std::int32_t> resident = input.ids<std::int32_t>(input.flag() ? num_rows % 100 : 0, 16);
  const std::vector<std::int64_t> shared_rows = input.ids<std::int64_t>(input.flag() ? num_rows % 100 : 0, 64);
  std::vector<std::uint16_t> low(ids.size() + input.below(2));
  std::vector<High> high(ids.size());
  std::vector<std::uint32_t> shared(input.below(8));
  std::vector<std::uint32_t> packed(input.below(40));
  const UnpackedRows unpacked{.num_resident = input.number(16), .resident_slots = resident, .shared_rows = shared_rows};
  assign_slots<High>(ids, num_rows, unpacked, low, high, shared, packed);
}

template <typename High>
void load(Input& input) {
  const std::size_t count = input.below(64);
  const std::vector<std::uint16_t> low = input.ids<std::uint16_t>(count, 1 << 16);
  const std::vector<High> high = input.ids<High>(count, 4);
  std::vector<std::int64_t> rows(count + input.below(2));
  const auto num_resident = static_cast<std::int64_t>(input.below(64));
  load_slots<High>(low, high, num_resident, static_cast<std::int64_t>(input.below(64)), rows);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range>([&] {
    switch (input.below(5)) {
      case 0:
        return pack<std::uint8_t>(input);
      case 1:
        return pack<std::uint16_t>(input);
      case 2:
        return load<std::uint8_t>(input);
      case 3:
        return load<std::uint16_t>(input);
      default:
        return untile(input);
    }
  });
  return 0;
}
