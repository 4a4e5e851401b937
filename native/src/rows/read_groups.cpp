#include "rows/read_groups.hpp"

#include <stdexcept>
#include <string>

#include "rows/read_planner.hpp"

namespace diskhop {
namespace {

// Enough groups that the device has work while the oldest one is copied out.
constexpr std::uint64_t max_groups = 8;
// Reads per group, at least. A group is waited for as a whole; reads of 64 small rows complete within a millisecond.
constexpr std::uint64_t min_group_reads = 64;

}  // namespace

ReadGroups share_staging(const Engine& engine, const File& file, const TableLayout& layout,
                         const ReadOptions& options) {
  ReadPlanner(layout, 0, file.offset_alignment(), options.max_read_bytes);  // checks the layout
  ReadGroups groups{};
  groups.block_bytes = std::max<std::uint64_t>(file.offset_alignment(), file.memory_alignment());
  // A row that starts inside a block may reach into one more block.
  const std::uint64_t row_read_bytes = round_up(layout.row_bytes + file.offset_alignment() - 1, groups.block_bytes);
  if (options.staging_bytes < 2 * row_read_bytes) {
    throw std::invalid_argument("staging of " + std::to_string(options.staging_bytes) + " bytes is too small for " +
                                file.path() + ": the smallest that works is " + std::to_string(2 * row_read_bytes));
  }
  const std::uint64_t read_bytes = std::max(round_up(options.max_read_bytes, groups.block_bytes), row_read_bytes);
  groups.num_groups = std::clamp<std::uint64_t>(options.staging_bytes / read_bytes, 2, max_groups);
  groups.group_bytes = options.staging_bytes / groups.num_groups / groups.block_bytes * groups.block_bytes;
  groups.max_read_bytes = std::min(options.max_read_bytes, groups.group_bytes);
  groups.most_reads = std::max<std::uint64_t>(min_group_reads, 2 * engine.depth() / groups.num_groups);
  return groups;
}

}  // namespace diskhop
