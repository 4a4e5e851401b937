#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "diskhop/rows.hpp"
#include "radix_sort.hpp"
#include "read_groups.hpp"

namespace diskhop {
namespace {

/// The ids wanted, ascending and without repeats, and where each goes: `places` are indices into the caller's ids,
/// those of sorted id k at starts[k] to starts[k + 1]. For ids that ascend already both are empty: id k goes to place
/// k. 16 bytes an id; 32 while it is made.
struct SortedIds {
  std::vector<std::int64_t> sorted;
  std::vector<std::uint32_t> places;
  std::vector<std::uint32_t> starts;
};

SortedIds sort_ids(std::span<const std::int64_t> ids, std::uint64_t num_rows) {
  struct PlacedId {
    std::uint64_t id;
    std::uint64_t place;
  };
  if (ids.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw std::length_error("rows are read at most 2^32 - 1 at once, got " + std::to_string(ids.size()) + " ids");
  }
  std::vector<PlacedId> items;
  items.reserve(ids.size());
  for (std::uint64_t place = 0; place < ids.size(); ++place) {
    const auto id = static_cast<std::uint64_t>(ids[place]);
    if (id >= num_rows) {
      throw std::out_of_range("row " + std::to_string(ids[place]) + " is outside the table of " +
                              std::to_string(num_rows) + " rows");
    }
    items.push_back({id, place});
  }
  radix_sort(items, static_cast<unsigned>(std::bit_width(num_rows)), [](const PlacedId& item) { return item.id; });
  SortedIds result;
  result.sorted.reserve(ids.size());
  result.places.reserve(ids.size());
  result.starts.reserve(ids.size() + 1);
  for (const PlacedId& item : items) {
    const auto id = static_cast<std::int64_t>(item.id);
    if (result.sorted.empty() || result.sorted.back() != id) {
      result.starts.push_back(static_cast<std::uint32_t>(result.places.size()));
      result.sorted.push_back(id);
    }
    result.places.push_back(static_cast<std::uint32_t>(item.place));
  }
  result.starts.push_back(static_cast<std::uint32_t>(result.places.size()));
  return result;
}

}  // namespace

RowReader::RowReader(Engine& engine, const File& file, TableLayout layout, RowReaderOptions options, BufferPool& pool)
    : engine_(engine),
      file_(file),
      layout_(layout),
      options_(options),
      pool_(pool),
      groups_(share_staging(engine, file, layout, options)) {
  options_.max_read_bytes = groups_.max_read_bytes;
}

ReadCounts RowReader::read(std::span<const std::int64_t> ids, std::span<const std::int64_t> to_rows, std::byte* out,
                           Priority priority) const {
  SortedIds wanted;
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>{}) != ids.end()) {
    wanted = sort_ids(ids, layout_.num_rows);
    ids = wanted.sorted;
  }
  const std::vector<PlannedRead> reads =
      plan_reads(ids, layout_, options_.max_gap_bytes, file_.offset_alignment(), options_.max_read_bytes);
  if (reads.empty()) return {};

  ReadCounts counts{.reads = reads.size()};
  const auto put = [&](std::uint64_t place, const std::byte* row) {
    const std::uint64_t to_row = to_rows.empty() ? place : static_cast<std::uint64_t>(to_rows[place]);
    std::memcpy(out + to_row * layout_.row_bytes, row, layout_.row_bytes);
    counts.bytes_copied += layout_.row_bytes;
  };
  const auto copy_out = [&](const PlannedRead& read, const std::byte* staged) {
    for (std::uint64_t index = read.first_wanted; index < read.first_wanted + read.num_wanted; ++index) {
      const std::byte* row = staged + (static_cast<std::uint64_t>(ids[index]) * layout_.row_stride - read.offset);
      if (wanted.starts.empty()) {
        put(index, row);
        continue;
      }
      for (std::uint64_t entry = wanted.starts[index]; entry < wanted.starts[index + 1]; ++entry) {
        put(wanted.places[entry], row);
      }
    }
  };

  const PooledBuffer staging(pool_, groups_.num_groups * groups_.group_bytes);
  ReadWindow window(engine_, priority);
  std::vector<std::vector<Op>> groups(groups_.num_groups);
  std::vector<std::size_t> first_reads(groups_.num_groups);
  std::size_t next_read = 0;
  std::uint64_t num_submitted = 0;
  std::uint64_t num_copied = 0;
  while (num_copied < num_submitted || next_read < reads.size()) {
    if (next_read < reads.size() && num_submitted - num_copied < groups_.num_groups) {
      const std::uint64_t slot = num_submitted % groups_.num_groups;
      std::byte* const slot_end = staging.data() + (slot + 1) * groups_.group_bytes;
      std::byte* free = slot_end - groups_.group_bytes;
      std::vector<Op>& ops = groups[slot];
      ops.clear();
      first_reads[slot] = next_read;
      for (; next_read < reads.size() && ops.size() < groups_.most_reads; ++next_read) {
        const PlannedRead& read = reads[next_read];
        if (read.num_bytes > static_cast<std::uint64_t>(slot_end - free)) break;
        ops.push_back({.kind = OperationKind::read,
                       .file = &file_,
                       .offset = read.offset,
                       .buffer = free,
                       .num_bytes = read.num_bytes,
                       .required_bytes = read.required_bytes});
        free += std::min(round_up(read.num_bytes, groups_.block_bytes), static_cast<std::uint64_t>(slot_end - free));
        counts.bytes_read += read.num_bytes;
      }
      window.submit(ops);
      ++num_submitted;
      continue;
    }
    window.wait_oldest();
    const std::uint64_t slot = num_copied++ % groups_.num_groups;
    for (std::size_t index = 0; index < groups[slot].size(); ++index) {
      copy_out(reads[first_reads[slot] + index], groups[slot][index].buffer);
    }
  }
  return counts;
}

}  // namespace diskhop
