#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/hops/tiles.hpp"
#include "diskhop/io/content_sum.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

using ByteRows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowNumbers = std::optional<InputArray<std::int64_t>>;
using OutByteRows = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

/// Checks tiles (num_tiles, rows * tile_row_bytes) against rows of row_bytes, and returns their tiling.
Tiling tiling_of(std::uint64_t num_tiles, std::uint64_t tile_bytes, std::uint64_t row_bytes,
                 std::uint64_t tile_row_bytes) {
  if (row_bytes == 0 || tile_row_bytes == 0) throw std::invalid_argument("rows and tiles need at least 1 byte per row");
  const Tiling tiling{
      .num_rows = tile_bytes / tile_row_bytes, .row_bytes = row_bytes, .tile_row_bytes = tile_row_bytes};
  if (tiling.num_tiles() != num_tiles || tiling.tile_bytes() != tile_bytes) {
    throw std::invalid_argument("tiles must be (" + std::to_string(tiling.num_tiles()) + ", a multiple of " +
                                std::to_string(tile_row_bytes) + ") bytes, got (" + std::to_string(num_tiles) + ", " +
                                std::to_string(tile_bytes) + ")");
  }
  return tiling;
}

void cut(const ByteRows& rows, const OutByteRows& tiles, std::uint64_t tile_row_bytes, unsigned num_threads) {
  const Tiling tiling = tiling_of(tiles.shape(0), tiles.shape(1), rows.shape(1), tile_row_bytes);
  const nb::gil_scoped_release unlocked;
  tile_rows(reinterpret_cast<const std::byte*>(rows.data()), rows.shape(0), tiling,
            reinterpret_cast<std::byte*>(tiles.data()), num_threads);
}

std::span<const std::int64_t> span_of(const RowNumbers& rows) {
  return rows ? as_span(*rows) : std::span<const std::int64_t>{};
}

void join(const ByteRows& tiles, std::uint64_t tile_row_bytes, const RowNumbers& rows, const OutByteRows& out,
          unsigned num_threads, const RowNumbers& to_rows) {
  const Tiling tiling = tiling_of(tiles.shape(0), tiles.shape(1), out.shape(1), tile_row_bytes);
  const std::uint64_t count = to_rows ? to_rows->size() : rows ? rows->size() : out.shape(0);
  if (count == 0) return;
  const nb::gil_scoped_release unlocked;
  untile_rows(reinterpret_cast<const std::byte*>(tiles.data()), tiling, span_of(rows),
              reinterpret_cast<std::byte*>(out.data()), out.shape(0), span_of(to_rows), count, num_threads);
}

using ContentArray = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

}  // namespace

void bind_tiles(nb::module_& module) {
  using namespace nb::literals;
  module.def("tile_rows", &cut, "rows"_a.noconvert(), "tiles"_a.noconvert(), "tile_row_bytes"_a, "num_threads"_a = 1,
             "Set tiles[t, r] to part t of row r; the rest becomes zeros.");
  module.def("untile_rows", &join, "tiles"_a.noconvert(), "tile_row_bytes"_a, "rows"_a.noconvert().none(),
             "out"_a.noconvert(), "num_threads"_a = 1, "to_rows"_a.noconvert().none() = nb::none(),
             "Copy rows of the tiles to out[to_rows]; None: 0, 1, 2 ...");
  module.def(
      "page_sums",
      [](const ContentArray& content, std::uint64_t first_page) {
        const nb::gil_scoped_release unlocked;
        return page_sums({reinterpret_cast<const std::byte*>(content.data()), content.size()}, first_page);
      },
      "content"_a.noconvert(), "first_page"_a, "Return the sum of a file's pages from first_page on, modulo 2^64.");
}

}  // namespace diskhop
