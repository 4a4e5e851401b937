#include <algorithm>
#include <cstring>

#include "diskhop/rows/rows.hpp"
#include "rows/placed_ids.hpp"
#include "rows/read_groups.hpp"
#include "rows/read_planner.hpp"

namespace diskhop {
namespace {

// Reads are planned for so many ids at a time: the first are on their way while others are planned.
constexpr std::size_t ids_a_part = 4096;

/// The ids wanted, ascending and without repeats, and where each goes: `places` are indices into the caller's ids,
/// those of sorted id k at starts[k] to starts[k + 1]. 16 bytes an id; 32 while it is made.
struct SortedIds {
  std::vector<std::int64_t> sorted;
  std::vector<std::uint32_t> places;
  std::vector<std::uint32_t> starts;
};

SortedIds sort_ids(std::span<const std::int64_t> ids, std::uint64_t num_rows) {
  const std::vector<PlacedId> items = sort_by_id(ids, num_rows);
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

/// Where rows go: row to_rows[place] of `out`, or row `place` where there are no to_rows.
struct Destination {
  std::span<const std::int64_t> to_rows;
  std::byte* out;
  std::uint64_t row_bytes;

  void put(std::uint64_t place, const std::byte* row) const {
    const std::uint64_t to_row = to_rows.empty() ? place : static_cast<std::uint64_t>(to_rows[place]);
    std::memcpy(out + to_row * row_bytes, row, row_bytes);
  }
};

}  // namespace

RowReader::RowReader(Engine& engine, const File& file, TableLayout layout, ReadOptions options, BufferPool& pool)
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
  const Destination destination{to_rows, out, layout_.row_bytes};
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>{}) == ids.end()) {
    if (!ids.empty()) {
      check_id(ids.front(), layout_.num_rows);
      check_id(ids.back(), layout_.num_rows);
    }
    return read_sorted(
        ids,
        [&destination](std::uint64_t index, const std::byte* row) {
          destination.put(index, row);
          return 1;
        },
        priority);
  }
  const SortedIds wanted = sort_ids(ids, layout_.num_rows);
  return read_sorted(
      wanted.sorted,
      [&](std::uint64_t index, const std::byte* row) {
        for (std::uint64_t entry = wanted.starts[index]; entry < wanted.starts[index + 1]; ++entry) {
          destination.put(wanted.places[entry], row);
        }
        return wanted.starts[index + 1] - wanted.starts[index];
      },
      priority);
}

template <typename PutRow>
ReadCounts RowReader::read_sorted(std::span<const std::int64_t> ids, PutRow put_row, Priority priority) const {
  ReadCounts counts;
  if (ids.empty()) return counts;
  ReadPlanner planner(layout_, options_.max_gap_bytes, file_.offset_alignment(), options_.max_read_bytes);
  std::vector<PlannedRead> planned;
  std::size_t next_planned = 0;
  std::size_t num_planned_ids = 0;
  const auto has_next = [&] {
    if (next_planned < planned.size()) return true;
    planned.clear();
    next_planned = 0;
    while (planned.empty() && num_planned_ids < ids.size()) {
      const std::size_t end = std::min(ids.size(), num_planned_ids + ids_a_part);
      planner.add(ids.subspan(num_planned_ids, end - num_planned_ids), planned);
      num_planned_ids = end;
      if (num_planned_ids == ids.size()) planner.finish(planned);
    }
    return !planned.empty();
  };

  struct Group {
    std::vector<PlannedRead> reads;
    ReadGroup submitted;
  };
  const PooledBuffer staging(pool_, groups_.num_groups * groups_.group_bytes);
  ReadWindow window(engine_, priority);
  std::vector<Group> groups(groups_.num_groups);
  std::uint64_t num_submitted = 0;
  std::uint64_t num_copied = 0;
  const auto submit_group = [&] {
    if (!has_next()) return false;
    const std::uint64_t slot = num_submitted % groups_.num_groups;
    auto& [group_reads, submitted] = groups[slot];
    group_reads.clear();
    submitted.start(staging.data() + slot * groups_.group_bytes, groups_);
    for (; submitted.ops().size() < groups_.most_reads && has_next(); ++next_planned) {
      const PlannedRead& read = planned[next_planned];
      if (!submitted.add(file_, read.offset, read.num_bytes, read.required_bytes)) break;
      group_reads.push_back(read);
      counts.bytes_read += read.num_bytes;
    }
    counts.reads += group_reads.size();
    window.submit(submitted.ops());
    ++num_submitted;
    return true;
  };
  while (true) {
    if (num_submitted - num_copied < groups_.num_groups - 1 && submit_group()) continue;
    if (num_copied == num_submitted) return counts;
    window.wait_oldest();
    const auto& [group_reads, arrived] = groups[num_copied % groups_.num_groups];
    // The disk goes on while these rows are copied: it may have come to an end of all that it was given.
    submit_group();
    ++num_copied;
    for (std::size_t number = 0; number < group_reads.size(); ++number) {
      const PlannedRead& read = group_reads[number];
      const std::byte* const staged = arrived.ops()[number].buffer;
      std::uint64_t num_put = 0;
      for (std::uint64_t index = read.first_wanted; index < read.first_wanted + read.num_wanted; ++index) {
        num_put += put_row(index, staged + (static_cast<std::uint64_t>(ids[index]) * layout_.row_stride - read.offset));
      }
      counts.bytes_copied += num_put * layout_.row_bytes;
    }
  }
}

}  // namespace diskhop
