// From a row's sum to its place in the next hop's tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hops/bad_rows.hpp"
#include "diskhop/hops/propagate.hpp"

namespace diskhop {

/// A strip in memory: its part of every tile lies together, tile after tile.
struct StripRows {
  std::uint64_t first_row = 0;
  std::uint64_t num_rows = 0;  // of the strip, those beyond the table's last included
  const std::int64_t* indptr = nullptr;
  const float* scales = nullptr;      // none: 1
  const std::byte* addend = nullptr;  // none: 0
  std::byte* output = nullptr;
};

/// What all rows of a pass share.
struct RowFormula {
  Block block;
  float product_scale = 1;
  float self_weight = 0;
  ValueFormat addend_format = ValueFormat::float32;
  float addend_scale = 0;
  ValueFormat output_format = ValueFormat::float32;
};

/// Rows [begin, begin + count) of the strip, whose sums (count, columns) are complete, get their output; those with
/// values that the format does not hold are noted.
void finish_rows(const RowFormula& formula, const StripRows& strip, std::uint64_t begin, std::uint64_t count,
                 const float* sums, BadRows& bad_rows, InstructionSet instructions);
/// Rows from `begin` on, which the table does not have, get zeros.
void fill_padding(const RowFormula& formula, const StripRows& strip, std::uint64_t begin);

}  // namespace diskhop
