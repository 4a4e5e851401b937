// Output of a pass: from a row's sum to its values in the next hop's tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "diskhop/hops/propagate.hpp"
#include "hops/bad_rows.hpp"

namespace diskhop {

/// A strip in memory: its parts of the tiles, tile after tile.
struct StripRows {
  std::uint64_t first_row = 0;
  std::uint64_t num_rows = 0;  // of the strip, including rows beyond the table's last
  const std::int64_t* indptr = nullptr;
  const float* scales = nullptr;      // null: all 1
  const std::byte* addend = nullptr;  // null: all 0
  std::byte* output = nullptr;
};

/// Formula, columns and format shared by all rows of a pass.
struct RowFormula {
  Block block;
  float product_scale = 1;
  float self_weight = 0;
  ValueFormat addend_format = ValueFormat::float32;
  float addend_scale = 0;
  ValueFormat output_format = ValueFormat::float32;
};

/// Computes the output of rows [begin, begin + count) of the strip from their complete sums (count, columns). Records
/// rows with values that the format cannot represent.
void finish_rows(const RowFormula& formula, const StripRows& strip, std::uint64_t begin, std::uint64_t count,
                 const float* sums, BadRows& bad_rows, InstructionSet instructions);
/// Fills rows from `begin` on, beyond the table's last, with zeros.
void fill_padding(const RowFormula& formula, const StripRows& strip, std::uint64_t begin);

}  // namespace diskhop
