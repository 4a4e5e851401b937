#include "hops/finish_rows.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "hops/tile_values.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t chunk_rows = 256;  // at a time, in the first-level cache

// Whether any of the stored values is infinite or NaN: its exponent has all bits set.
template <typename Word>
[[gnu::always_inline]] inline bool has_bad_word(const std::byte* values, std::size_t count, Word exponent) {
  Word any = 0;
  for (std::size_t number = 0; number < count; ++number) {
    Word word;
    std::memcpy(&word, values + number * sizeof word, sizeof word);
    any |= static_cast<Word>((word & exponent) == exponent);
  }
  return any != 0;
}

[[gnu::always_inline]] inline bool has_bad_value(ValueFormat format, const std::byte* values, std::size_t count) {
  if (format == ValueFormat::float32) return has_bad_word<std::uint32_t>(values, count, 0x7f800000);
  return has_bad_word<std::uint16_t>(values, count, format == ValueFormat::float16 ? 0x7c00 : 0x7f80);
}

template <std::size_t lanes>
struct FinishChunk {
  const RowFormula& formula;
  const StripRows& strip;
  std::uint64_t begin;
  std::uint64_t count;
  const float* sums;
  BadRows& bad_rows;

  [[gnu::always_inline]] void operator()() const {
    const std::uint64_t num_columns = formula.block.num_columns;
    std::array<float, chunk_rows> scales;
    for (std::uint64_t row = 0; row < count; ++row) {
      scales[row] = strip.scales != nullptr ? formula.product_scale * strip.scales[begin + row] : formula.product_scale;
    }
    bool is_bad = false;
    std::array<float, chunk_rows * tile_columns> values;
    std::array<float, chunk_rows * tile_columns> added;
    for (std::uint64_t column = 0; column < num_columns; column += tile_columns) {
      // Position of the tile's first of these rows, in values.
      const std::uint64_t place = column * strip.num_rows + begin * tile_columns;
      if (strip.addend != nullptr) {
        widen<lanes>(formula.addend_format, strip.addend + place * value_bytes(formula.addend_format),
                     count * tile_columns, added.data());
      }
      for (std::uint64_t row = 0; row < count; ++row) {
        Quad quad = load_quad(sums + row * num_columns + column);
        if (formula.self_weight != 0) {
          const float* own = formula.block.row(strip.first_row + begin + row) + column;
          quad += load_quad(own) * formula.self_weight;
        }
        quad *= scales[row];
        if (strip.addend != nullptr) quad += load_quad(added.data() + row * tile_columns) * formula.addend_scale;
        store_quad(values.data() + row * tile_columns, quad);
      }
      std::byte* const output = strip.output + place * value_bytes(formula.output_format);
      narrow<lanes>(formula.output_format, values.data(), count * tile_columns, output);
      is_bad |= has_bad_value(formula.output_format, output, count * tile_columns);
    }
    if (is_bad) note_bad_rows();
  }

  void note_bad_rows() const {
    const std::uint64_t row_bytes = tile_columns * value_bytes(formula.output_format);
    std::vector<std::int64_t> found;
    for (std::uint64_t row = begin; row < begin + count; ++row) {
      bool is_bad = false;
      for (std::uint64_t tile = 0; tile < formula.block.num_columns / tile_columns; ++tile) {
        const std::byte* const values = strip.output + (tile * strip.num_rows + row) * row_bytes;
        is_bad |= has_bad_value(formula.output_format, values, tile_columns);
      }
      if (is_bad) found.push_back(static_cast<std::int64_t>(strip.first_row + row));
    }
    bad_rows.add(std::move(found));
  }
};

}  // namespace

void finish_rows(const RowFormula& formula, const StripRows& strip, std::uint64_t begin, std::uint64_t count,
                 const float* sums, BadRows& bad_rows, InstructionSet instructions) {
  for (std::uint64_t first = 0; first < count; first += chunk_rows) {
    with_instructions(instructions, [&](auto set) {
      set.run(FinishChunk<set.lanes>{formula, strip, begin + first, std::min(count - first, chunk_rows),
                                     sums + first * formula.block.num_columns, bad_rows});
    });
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
