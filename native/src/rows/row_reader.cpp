#include <algorithm>
#include <cstring>
#include <utility>

#include "diskhop/rows/rows.hpp"
#include "rows/placed_ids.hpp"
#include "rows/read_groups.hpp"
#include "rows/read_planner.hpp"

namespace diskhop {
namespace {

// Ids per planning step: the first reads are in flight while later ones are planned.
constexpr std::size_t ids_per_part = 4096;

/// Distinct ids, ascending, and the caller's positions of each: id k has places[starts[k]] .. places[starts[k + 1] -
/// 1]. Memory: 16 bytes per id; 32 while it is made.
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

/// Destination of rows: row to_rows[place] of `out`, or row `place` without to_rows.
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
  const SortedIds sorted_ids = sort_ids(ids, layout_.num_rows);
  return read_sorted(
      sorted_ids.sorted,
      [&](std::uint64_t index, const std::byte* row) {
        for (std::uint64_t entry = sorted_ids.starts[index]; entry < sorted_ids.starts[index + 1]; ++entry) {
          destination.put(sorted_ids.places[entry], row);
        }
        return sorted_ids.starts[index + 1] - sorted_ids.starts[index];
      },
      priority);
}

namespace {

/// Planned reads of sorted ids, in order, planned a part at a time.
class UpcomingReads {
 public:
  UpcomingReads(std::span<const std::int64_t> ids, ReadPlanner planner) : ids_(ids), planner_(std::move(planner)) {}

  /// The next read, or null if there are no more.
  [[nodiscard]] const PlannedRead* front() {
    if (next_ == planned_.size()) plan();
    return next_ < planned_.size() ? &planned_[next_] : nullptr;
  }
  /// Moves on to the read after front().
  void pop() { ++next_; }

 private:
  void plan() {
    planned_.clear();
    next_ = 0;
    while (planned_.empty() && num_planned_ids_ < ids_.size()) {
      const std::size_t end = std::min(ids_.size(), num_planned_ids_ + ids_per_part);
      planner_.add(ids_.subspan(num_planned_ids_, end - num_planned_ids_), planned_);
      num_planned_ids_ = end;
      if (num_planned_ids_ == ids_.size()) planner_.finish(planned_);
    }
  }

  std::span<const std::int64_t> ids_;
  ReadPlanner planner_;
  std::vector<PlannedRead> planned_;
  std::size_t next_ = 0;  // in planned_
  std::size_t num_planned_ids_ = 0;
};

}  // namespace

template <typename PutRow>
ReadCounts RowReader::read_sorted(std::span<const std::int64_t> ids, PutRow put_row, Priority priority) const {
  ReadCounts counts;
  if (ids.empty()) return counts;
  UpcomingReads upcoming(
      ids, ReadPlanner(layout_, options_.max_gap_bytes, file_.offset_alignment(), options_.max_read_bytes));
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
    if (upcoming.front() == nullptr) return false;
    const std::uint64_t slot = num_submitted % groups_.num_groups;
    auto& [group_reads, submitted] = groups[slot];
    group_reads.clear();
    submitted.start(staging.data() + slot * groups_.group_bytes, groups_);
    while (submitted.ops().size() < groups_.most_reads) {
      const PlannedRead* const read = upcoming.front();
      if (read == nullptr || !submitted.add(file_, read->offset, read->num_bytes, read->required_bytes)) break;
      group_reads.push_back(*read);
      counts.bytes_read += read->num_bytes;
      upcoming.pop();
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
    // The disk continues while these rows are copied: it may have finished all submitted reads.
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
