#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

#include "diskhop/rows.hpp"
#include "read_groups.hpp"

namespace diskhop {
namespace {

void check_plan_arguments(const TableLayout& layout, std::uint64_t alignment, std::uint64_t max_read_bytes) {
  if (layout.row_bytes == 0 || layout.row_stride < layout.row_bytes) {
    throw std::invalid_argument("row_stride must be at least row_bytes, and row_bytes at least 1; got " +
                                std::to_string(layout.row_stride) + " and " + std::to_string(layout.row_bytes));
  }
  // Half of the range of 64 bits leaves room for rounding up and for signed file offsets.
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

std::vector<PlannedRead> plan_reads(std::span<const std::int64_t> sorted_ids, const TableLayout& layout,
                                    std::int64_t max_gap_bytes, std::uint64_t alignment, std::uint64_t max_read_bytes) {
  check_plan_arguments(layout, alignment, max_read_bytes);
  const std::uint64_t table_bytes = layout.num_rows * layout.row_stride;
  std::vector<PlannedRead> reads;
  reads.reserve(sorted_ids.size());  // no more than asked for is ever touched; growing would hold everything twice
  std::int64_t previous = -1;
  const CoalescingRule rule{.layout = layout,
                            .max_gap_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(max_gap_bytes, 0)),
                            .alignment = alignment,
                            .max_read_bytes = max_read_bytes};
  Extent last{};  // the last read, in registers: there are many rows a read
  for (std::size_t wanted = 0; wanted < sorted_ids.size(); ++wanted) {
    const std::int64_t id = sorted_ids[wanted];
    if (id < 0 || static_cast<std::uint64_t>(id) >= layout.num_rows) {
      throw std::out_of_range("row " + std::to_string(id) + " is outside the table of " +
                              std::to_string(layout.num_rows) + " rows");
    }
    if (id <= previous) {
      throw std::invalid_argument("sorted_ids must ascend strictly, but " + std::to_string(id) + " follows " +
                                  std::to_string(previous));
    }
    previous = id;
    const Extent row = rule.blocks_of(id);
    if (max_gap_bytes >= 0 && !reads.empty() && rule.may_take(last, row)) {
      last.end = row.end;
      continue;
    }
    if (!reads.empty()) reads.back().num_bytes = last.end - last.begin;
    last = row;
    reads.push_back(
        {.offset = row.begin, .num_bytes = 0, .required_bytes = 0, .first_wanted = wanted, .num_wanted = 0});
  }
  if (!reads.empty()) reads.back().num_bytes = last.end - last.begin;
  std::uint64_t wanted_end = sorted_ids.size();
  for (auto read = reads.rbegin(); read != reads.rend(); ++read) {
    read->required_bytes = std::min(read->num_bytes, table_bytes - read->offset);
    read->num_wanted = wanted_end - read->first_wanted;
    wanted_end = read->first_wanted;
  }
  return reads;
}

}  // namespace diskhop
