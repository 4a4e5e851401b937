#include "diskhop/belady.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

// Rows looked up ahead of their turn.
constexpr std::size_t rows_ahead = 16;
constexpr std::int64_t every_row = std::numeric_limits<std::int64_t>::max();

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

void check_rows(std::span<const std::int64_t> rows, std::uint64_t num_rows) {
  for (const std::int64_t row : rows) {
    if (static_cast<std::uint64_t>(row) >= num_rows) {
      throw std::out_of_range("row " + std::to_string(row) + " is outside the table of " + std::to_string(num_rows) +
                              " rows");
    }
  }
}

// Of distinct rows, the bound below which `count` of them lie. Changes their order.
std::int64_t bound_of_lowest(std::vector<std::int64_t>& rows, std::uint64_t count) {
  if (count >= rows.size()) return every_row;
  const auto bound = rows.begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(rows.begin(), bound, rows.end());
  return *bound;
}

}  // namespace

NextUses::NextUses(std::uint64_t num_rows, std::uint64_t num_batches)
    : next_uses_(num_rows, never_used), num_left_(static_cast<std::uint32_t>(num_batches)) {
  require(num_batches < never_used, "a span has fewer than 2^32 - 1 batches");
}

void NextUses::look_back(std::span<const std::int64_t> rows, std::span<std::uint32_t> next_uses) {
  if (num_left_ == 0) throw std::logic_error("all batches of the span were looked back over");
  require(rows.size() == next_uses.size(), "next uses must be as many as the rows");
  check_rows(rows, next_uses_.size());
  --num_left_;
  for (std::size_t position = 0; position < rows.size(); ++position) {
    if (position + rows_ahead < rows.size()) __builtin_prefetch(&next_uses_[rows[position + rows_ahead]], 1);
    std::uint32_t& next_use = next_uses_[rows[position]];
    next_uses[position] = next_use;
    next_use = num_left_;
  }
}

// Which next uses are near enough: all before `use`, and in it those of rows below a bound; num_free: how many rows
// that are not used again fit beside those that are, and those of their kind that are held.
struct BeladyCache::Cut {
  std::uint32_t use;
  std::uint64_t num_free;
  std::int64_t held_bound = 0;
  std::int64_t new_bound = 0;

  [[nodiscard]] bool keeps(std::int64_t row, std::uint32_t next_use, bool is_held) const noexcept {
    return next_use < use || (next_use == use && row < (is_held ? held_bound : new_bound));
  }
};

BeladyCache::BeladyCache(std::uint64_t num_rows, std::uint64_t capacity)
    : num_rows_(num_rows), capacity_(capacity), held_((num_rows + 63) / 64) {}

CacheChanges BeladyCache::begin(std::span<const std::uint32_t> first_uses, std::uint64_t num_batches, bool fills) {
  require(first_uses.size() == num_rows_, "first uses must be of every row of the table");
  require(num_batches < never_used, "a span has fewer than 2^32 - 1 batches");
  for (const std::uint32_t use : first_uses) {
    require(use < num_batches || use == never_used, "a row's first use must be a batch of the span, or never");
  }
  used_.assign(num_batches, {});
  new_uses_.assign(num_batches, 0);
  unused_.clear();
  next_batch_ = 0;
  end_use_ = 0;
  return update(
      num_rows_, [](std::size_t position) { return static_cast<std::int64_t>(position); }, first_uses,
      fills ? Comers::used : Comers::none);
}

CacheChanges BeladyCache::step(std::span<const std::int64_t> rows, std::span<const std::uint32_t> next_uses) {
  if (next_batch_ == used_.size()) throw std::logic_error("all batches of the span were stepped over");
  require(rows.size() == next_uses.size(), "next uses must be as many as the rows");
  check_rows(rows, num_rows_);
  std::uint64_t num_held = 0;
  bool is_within = true;
  for (std::size_t position = 0; position < rows.size(); ++position) {
    const std::uint32_t use = next_uses[position];
    is_within &= (use > next_batch_ && use < used_.size()) || use == never_used;
    num_held += holds(static_cast<std::uint64_t>(rows[position]));
  }
  require(is_within, "a next use must be a later batch of the span, or never");
  require(num_held == used_[next_batch_].size(), "rows held that this batch uses must be those told before");
  std::vector<std::int64_t>().swap(used_[next_batch_]);
  ++next_batch_;
  return update(rows.size(), [&](std::size_t position) { return rows[position]; }, next_uses, Comers::all);
}

// Decides about the rows given, and those held that are used later; rows given that are held are in no list.
template <typename RowAt>
CacheChanges BeladyCache::update(std::size_t count, const RowAt& row_at, std::span<const std::uint32_t> next_uses,
                                 Comers comers) {
  CacheChanges changes;
  Cut cut = choose_cut(count, row_at, next_uses, comers, changes.out_rows);
  for (std::size_t position = 0; position < count; ++position) {
    const std::int64_t row = row_at(position);
    const std::uint32_t use = next_uses[position];
    const bool is_held = holds(static_cast<std::uint64_t>(row));
    changes.num_hits += is_held;
    bool is_kept = false;
    if (use == never_used) {
      is_kept = is_held || (comers == Comers::all && cut.num_free > 0);
      if (is_kept) unused_.push_back(row);
      if (is_kept && !is_held) --cut.num_free;
    } else {
      is_kept = cut.keeps(row, use, is_held) && (is_held || comers != Comers::none);
      if (is_kept) used_[use].push_back(row);
    }
    if (is_kept && !is_held) changes.in_positions.push_back(static_cast<std::int64_t>(position));
    if (!is_kept && is_held) changes.out_rows.push_back(row);
    if (is_kept != is_held) flip(static_cast<std::uint64_t>(row));
  }
  size_ = size_ + changes.in_positions.size() - changes.out_rows.size();
  for (; size_ > capacity_; --size_) {
    changes.out_rows.push_back(unused_.front());
    flip(static_cast<std::uint64_t>(unused_.front()));
    unused_.pop_front();
  }
  return changes;
}

// Lets go of what is held beyond the cut, rows given excepted.
template <typename RowAt>
BeladyCache::Cut BeladyCache::choose_cut(std::size_t count, const RowAt& row_at,
                                         std::span<const std::uint32_t> next_uses, Comers comers,
                                         std::vector<std::int64_t>& out_rows) {
  std::uint64_t num_used = 0;
  std::uint64_t num_unused = unused_.size();
  for (std::size_t position = 0; position < count; ++position) {
    const std::uint32_t use = next_uses[position];
    const bool is_held = holds(static_cast<std::uint64_t>(row_at(position)));
    if (use == never_used) {
      num_unused += is_held;
      continue;
    }
    if (comers == Comers::none && !is_held) continue;
    ++new_uses_[use];
    ++num_used;
    end_use_ = std::max(end_use_, use + 1);
  }
  std::uint64_t num_listed = 0;
  for (std::uint32_t use = next_batch_; use < end_use_; ++use) num_listed += used_[use].size();
  num_used += num_listed;

  std::uint64_t num_excess = num_used - std::min(num_used, capacity_);
  while (num_excess > 0) {
    const std::uint64_t num_last = used_[end_use_ - 1].size() + new_uses_[end_use_ - 1];
    if (num_last > num_excess) break;
    --end_use_;
    for (const std::int64_t row : used_[end_use_]) flip(static_cast<std::uint64_t>(row));
    out_rows.insert(out_rows.end(), used_[end_use_].begin(), used_[end_use_].end());
    std::vector<std::int64_t>().swap(used_[end_use_]);
    num_excess -= num_last;
  }
  const std::uint64_t num_taken = std::min(num_used, capacity_) + num_unused;
  Cut cut{.use = end_use_, .num_free = capacity_ - std::min(num_taken, capacity_)};
  if (num_excess > 0) {
    cut.use = end_use_ - 1;
    std::vector<std::int64_t>& listed = used_[cut.use];
    std::vector<std::int64_t> held(listed);
    std::vector<std::int64_t> coming;
    for (std::size_t position = 0; position < count; ++position) {
      if (next_uses[position] != cut.use) continue;
      const std::int64_t row = row_at(position);
      const bool is_held = holds(static_cast<std::uint64_t>(row));
      if (is_held || comers != Comers::none) (is_held ? held : coming).push_back(row);
    }
    const std::uint64_t num_kept = held.size() + coming.size() - num_excess;
    cut.new_bound = bound_of_lowest(coming, num_kept - std::min<std::uint64_t>(num_kept, held.size()));
    cut.held_bound = bound_of_lowest(held, num_kept);
    const auto gone =
        std::partition(listed.begin(), listed.end(), [&](std::int64_t row) { return row < cut.held_bound; });
    for (auto row = gone; row != listed.end(); ++row) flip(static_cast<std::uint64_t>(*row));
    out_rows.insert(out_rows.end(), gone, listed.end());
    listed.erase(gone, listed.end());
  }
  for (std::size_t position = 0; position < count; ++position) {
    if (next_uses[position] != never_used) new_uses_[next_uses[position]] = 0;
  }
  return cut;
}

}  // namespace diskhop
