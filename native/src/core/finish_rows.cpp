#include "finish_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "instruction_sets.hpp"
#include "tile_values.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t chunk_rows = 256;  // at a time, in the first-level cache

struct FinishChunk {
  const RowFormula& formula;
  const StripRows& strip;
  std::uint64_t begin;
  std::uint64_t count;
  const float* sums;

  [[gnu::always_inline]] void operator()() const {
    const std::uint64_t num_columns = formula.block.num_columns;
    std::array<float, chunk_rows> scales;
    for (std::uint64_t row = 0; row < count; ++row) {
      scales[row] = strip.scales != nullptr ? formula.product_scale * strip.scales[begin + row] : formula.product_scale;
    }
    std::array<float, chunk_rows * tile_columns> values;
    std::array<float, chunk_rows * tile_columns> added;
    for (std::uint64_t column = 0; column < num_columns; column += tile_columns) {
      // Where the tile has its first of these rows, in values.
      const std::uint64_t place = column * strip.num_rows + begin * tile_columns;
      if (strip.addend != nullptr) {
        widen(formula.addend_format, strip.addend + place * value_bytes(formula.addend_format), count * tile_columns,
              added.data());
      }
      for (std::uint64_t row = 0; row < count; ++row) {
        Quad quad = load_quad(sums + row * num_columns + column);
        if (formula.self_weight != 0) {
          const float* own = formula.block.data + (strip.first_row + begin + row) * formula.block.stride + column;
          quad += load_quad(own) * formula.self_weight;
        }
        quad *= scales[row];
        if (strip.addend != nullptr) quad += load_quad(added.data() + row * tile_columns) * formula.addend_scale;
        store_quad(values.data() + row * tile_columns, quad);
      }
      narrow(formula.output_format, values.data(), count * tile_columns,
             strip.output + place * value_bytes(formula.output_format));
    }
  }
};

}  // namespace

void finish_rows(const RowFormula& formula, const StripRows& strip, std::uint64_t begin, std::uint64_t count,
                 const float* sums, InstructionSet instructions) {
  for (std::uint64_t first = 0; first < count; first += chunk_rows) {
    run_with(instructions, FinishChunk{formula, strip, begin + first, std::min(count - first, chunk_rows),
                                       sums + first * formula.block.num_columns});
  }
}

void fill_padding(const RowFormula& formula, const StripRows& strip, std::uint64_t begin) {
  const std::uint64_t row_bytes = tile_columns * value_bytes(formula.output_format);
  for (std::uint64_t column = 0; column < formula.block.num_columns; column += tile_columns) {
    std::byte* const tile = strip.output + column / tile_columns * strip.num_rows * row_bytes;
    std::memset(tile + begin * row_bytes, 0, (strip.num_rows - begin) * row_bytes);
  }
}

}  // namespace diskhop
