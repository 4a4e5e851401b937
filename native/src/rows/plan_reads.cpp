#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "rows/read_planner.hpp"

namespace diskhop {
namespace {

void check_plan_arguments(const TableLayout& layout, std::uint64_t alignment, std::uint64_t max_read_bytes) {
  if (layout.row_bytes == 0 || layout.row_stride < layout.row_bytes) {
    throw std::invalid_argument("row_stride must be at least row_bytes, and row_bytes at least 1; got " +
                                std::to_string(layout.row_stride) + " and " + std::to_string(layout.row_bytes));
  }
  // Half of the 64-bit range leaves room for rounding up and for signed file offsets.
  if (layout.num_rows > (std::uint64_t{1} << 62) / layout.row_stride) {
    throw std::invalid_argument("a table of " + std::to_string(layout.num_rows) + " rows of " +
                                std::to_string(layout.row_stride) + " bytes exceeds 2^62 bytes");
  }
  if (!std::has_single_bit(alignment) || alignment > (std::uint64_t{1} << 40)) {
    throw std::invalid_argument("alignment must be a power of two up to 2^40, got " + std::to_string(alignment));
  }
  if (max_read_bytes == 0) throw std::invalid_argument("max_read_bytes must be at least 1");
}

}  // namespace

ReadPlanner::ReadPlanner(const TableLayout& layout, std::int64_t max_gap_bytes, std::uint64_t alignment,
                         std::uint64_t max_read_bytes)
    : rule_{.layout = layout,
            .max_gap_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(max_gap_bytes, 0)),
            .alignment = alignment,
            .max_read_bytes = max_read_bytes},
      merges_(max_gap_bytes >= 0) {
  check_plan_arguments(layout, alignment, max_read_bytes);
}

void ReadPlanner::add(std::span<const std::int64_t> sorted_ids, std::vector<PlannedRead>& reads) {
  // In registers: a read has many rows.
  OpenRead open = open_;
  std::int64_t previous = previous_id_;
  for (const std::int64_t id : sorted_ids) {
    if (id < 0 || static_cast<std::uint64_t>(id) >= rule_.layout.num_rows) {
      throw std::out_of_range("row " + std::to_string(id) + " is outside the table of " +
                              std::to_string(rule_.layout.num_rows) + " rows");
    }
    if (id <= previous) {
      throw std::invalid_argument("sorted_ids must ascend strictly, but " + std::to_string(id) + " follows " +
                                  std::to_string(previous));
    }
    previous = id;
    const Extent row = rule_.blocks_of(id);
    if (merges_ && open.num_wanted > 0 && rule_.may_take(open.extent, row)) {
      open.extent.end = row.end;
      ++open.num_wanted;
      continue;
    }
    close(open, reads);
    open = {.extent = row, .first_wanted = open.first_wanted + open.num_wanted, .num_wanted = 1};
  }
  open_ = open;
  previous_id_ = previous;
}

void ReadPlanner::finish(std::vector<PlannedRead>& reads) { close(open_, reads); }

void ReadPlanner::close(const OpenRead& read, std::vector<PlannedRead>& reads) const {
  if (read.num_wanted == 0) return;
  const std::uint64_t table_bytes = rule_.layout.num_rows * rule_.layout.row_stride;
  reads.push_back({.offset = read.extent.begin,
                   .num_bytes = read.extent.end - read.extent.begin,
                   .required_bytes = std::min(read.extent.end, table_bytes) - read.extent.begin,
                   .first_wanted = read.first_wanted,
                   .num_wanted = read.num_wanted});
}

std::vector<PlannedRead> plan_reads(std::span<const std::int64_t> sorted_ids, const TableLayout& layout,
                                    std::int64_t max_gap_bytes, std::uint64_t alignment, std::uint64_t max_read_bytes) {
  std::vector<PlannedRead> reads;
  reads.reserve(
      sorted_ids.size());  // pages are touched only as needed; growing would copy, and need both arrays at once
  ReadPlanner planner(layout, max_gap_bytes, alignment, max_read_bytes);
  planner.add(sorted_ids, reads);
  planner.finish(reads);
  return reads;
}

}  // namespace diskhop
