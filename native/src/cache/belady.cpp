#include "diskhop/cache/belady.hpp"

#include <algorithm>
#include <array>
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
  std::uint64_t largest = 0;
  // A negative row is a large one without its sign.
  for (const std::int64_t row : rows) largest = std::max(largest, static_cast<std::uint64_t>(row));
  if (rows.empty() || largest < num_rows) return;
  throw std::out_of_range("row " + std::to_string(static_cast<std::int64_t>(largest)) + " is outside the table of " +
                          std::to_string(num_rows) + " rows");
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
    return (next_use < use) | ((next_use == use) & (row < (is_held ? held_bound : new_bound)));
  }
};

// -- lists --

void BeladyCache::RowLists::reset(std::size_t num_lists) {
  chunks_.clear();
  num_free_ = 0;
  lists_.assign(num_lists, {});
}

std::uint32_t BeladyCache::RowLists::take_chunk() {
  if (num_free_ == 0) {
    chunks_.emplace_back();
    return static_cast<std::uint32_t>(chunks_.size() - 1);
  }
  --num_free_;
  const std::uint32_t chunk = first_free_;
  first_free_ = chunks_[chunk].next;
  return chunk;
}

void BeladyCache::RowLists::clear(std::size_t list) {
  List& found = lists_[list];
  for (std::uint64_t left = (found.size + chunk_rows - 1) / chunk_rows; left > 0; --left) {
    const std::uint32_t chunk = found.first;
    found.first = chunks_[chunk].next;
    chunks_[chunk].next = first_free_;
    first_free_ = chunk;
    ++num_free_;
  }
  found.size = 0;
}

void BeladyCache::RowLists::append_to(std::vector<std::int64_t>& rows, std::size_t list) const {
  std::uint32_t chunk = lists_[list].first;
  for (std::uint64_t left = lists_[list].size; left > 0; chunk = chunks_[chunk].next) {
    const std::uint64_t count = (left - 1) % chunk_rows + 1;
    rows.insert(rows.end(), chunks_[chunk].rows.begin(),
                chunks_[chunk].rows.begin() + static_cast<std::ptrdiff_t>(count));
    left -= count;
  }
}

// -- cache --

BeladyCache::BeladyCache(std::uint64_t num_rows, std::uint64_t capacity)
    : num_rows_(num_rows), capacity_(capacity), held_((num_rows + 63) / 64) {}

CacheChanges BeladyCache::begin(std::span<const std::uint32_t> first_uses, std::uint64_t num_batches, bool fills) {
  require(first_uses.size() == num_rows_, "first uses must be of every row of the table");
  require(num_batches < never_used, "a span has fewer than 2^32 - 1 batches");
  for (const std::uint32_t use : first_uses) {
    require(use < num_batches || use == never_used, "a row's first use must be a batch of the span, or never");
  }
  used_.reset(num_batches);
  uses_.resize(num_batches + 1);
  unused_.clear();
  next_batch_ = 0;
  end_use_ = 0;
  is_held_.resize(num_rows_);
  for (std::uint64_t row = 0; row < num_rows_; ++row) is_held_[row] = holds(row);
  CacheChanges changes = update([](std::size_t position) { return static_cast<std::int64_t>(position); }, first_uses,
                                fills ? Comers::used : Comers::none);
  // Of the table's size, no batch's.
  std::vector<std::uint8_t>().swap(is_held_);
  return changes;
}

CacheChanges BeladyCache::step(std::span<const std::int64_t> rows, std::span<const std::uint32_t> next_uses) {
  const std::size_t num_batches = used_.num_lists();
  if (next_batch_ == num_batches) throw std::logic_error("all batches of the span were stepped over");
  require(rows.size() == next_uses.size(), "next uses must be as many as the rows");
  check_rows(rows, num_rows_);
  is_held_.resize(rows.size());
  std::uint64_t num_held = 0;
  bool is_within = true;
  const std::uint64_t* const held = held_.data();
  std::uint8_t* const is_held = is_held_.data();
  for (std::size_t position = 0; position < rows.size(); ++position) {
    const auto row = static_cast<std::uint64_t>(rows[position]);
    const std::uint32_t use = next_uses[position];
    is_within &= (use > next_batch_ && use < num_batches) || use == never_used;
    is_held[position] = held[row / 64] >> (row % 64) & 1;
    num_held += is_held[position];
  }
  require(is_within, "a next use must be a later batch of the span, or never");
  require(num_held == used_.size(next_batch_), "rows held that this batch uses must be those told before");
  used_.clear(next_batch_);
  ++next_batch_;
  return update([&](std::size_t position) { return rows[position]; }, next_uses, Comers::all);
}

// Decides about the rows given, and those held that are used later; rows given that are held are in no list.
template <typename RowAt>
CacheChanges BeladyCache::update(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Comers comers) {
  CacheChanges changes;
  Cut cut = choose_cut(row_at, next_uses, comers, changes.out_rows);
  const bool may_come_in = comers != Comers::none;
  std::uint64_t num_hits = 0;
  // What becomes of a row is as good as random: first decided without a branch, then carried out by kinds.
  constexpr std::size_t block_rows = 2048;
  std::array<std::uint32_t, block_rows> kept;
  std::array<std::uint32_t, block_rows> coming;
  std::array<std::uint32_t, block_rows> others;
  for (std::size_t begin = 0; begin < next_uses.size(); begin += block_rows) {
    const std::size_t count = std::min(block_rows, next_uses.size() - begin);
    std::size_t num_kept = 0;
    std::size_t num_coming = 0;
    std::size_t num_others = 0;
    for (std::uint32_t place = 0; place < count; ++place) {
      const std::uint32_t use = next_uses[begin + place];
      const bool is_held = is_held_[begin + place] != 0;
      const bool is_kept = cut.keeps(row_at(begin + place), use, is_held) & (is_held | may_come_in);
      num_hits += is_held;
      kept[num_kept] = place;
      num_kept += is_kept;
      coming[num_coming] = place;
      num_coming += is_kept & (!is_held);
      others[num_others] = place;
      num_others += (!is_kept) & (is_held | ((use == never_used) & (cut.num_free > 0)));
    }
    for (std::size_t i = 0; i < num_kept; ++i) used_.push(next_uses[begin + kept[i]], row_at(begin + kept[i]));
    for (std::size_t i = 0; i < num_coming; ++i) {
      changes.in_positions.push_back(static_cast<std::int64_t>(begin + coming[i]));
      flip(static_cast<std::uint64_t>(row_at(begin + coming[i])));
    }
    const std::size_t num_in = changes.in_positions.size();
    for (std::size_t i = 0; i < num_others; ++i) {
      const std::size_t position = begin + others[i];
      const std::int64_t row = row_at(position);
      const bool is_held = is_held_[position] != 0;
      if (next_uses[position] != never_used) {
        changes.out_rows.push_back(row);
        flip(static_cast<std::uint64_t>(row));
      } else if (is_held) {
        unused_.push_back(row);
      } else if (comers == Comers::all && cut.num_free > 0) {
        unused_.push_back(row);
        --cut.num_free;
        changes.in_positions.push_back(static_cast<std::int64_t>(position));
        flip(static_cast<std::uint64_t>(row));
      }
    }
    const auto middle = changes.in_positions.begin() + static_cast<std::ptrdiff_t>(num_in);
    std::inplace_merge(middle - static_cast<std::ptrdiff_t>(num_coming), middle, changes.in_positions.end());
  }
  changes.num_hits = num_hits;
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
BeladyCache::Cut BeladyCache::choose_cut(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Comers comers,
                                         std::vector<std::int64_t>& out_rows) {
  std::uint64_t num_used = 0;
  std::uint64_t num_unused = unused_.size();
  std::fill(uses_.begin(), uses_.end(), 0);
  {
    // Without a branch, which nothing would predict: the last count is of those that are not used again.
    std::uint64_t* const counts = uses_.data();
    const auto unused = static_cast<std::uint32_t>(used_.num_lists());
    const std::uint8_t may_come_in = comers != Comers::none;
    for (std::size_t position = 0; position < next_uses.size(); ++position) {
      const std::uint8_t is_held = is_held_[position];
      const std::uint32_t use = std::min(next_uses[position], unused);
      counts[use] += use == unused ? is_held : is_held | may_come_in;
    }
    num_unused += counts[unused];
  }
  for (std::size_t use = next_batch_; use < used_.num_lists(); ++use) {
    if (uses_[use] > 0) end_use_ = std::max(end_use_, static_cast<std::uint32_t>(use + 1));
    num_used += uses_[use] + used_.size(use);
  }
  std::uint64_t num_excess = num_used - std::min(num_used, capacity_);
  std::vector<std::int64_t> gone;
  while (num_excess > 0) {
    const std::uint64_t num_last = used_.size(end_use_ - 1) + uses_[end_use_ - 1];
    if (num_last > num_excess) break;
    --end_use_;
    used_.append_to(gone, end_use_);
    used_.clear(end_use_);
    num_excess -= num_last;
  }
  const std::uint64_t num_taken = std::min(num_used, capacity_) + num_unused;
  Cut cut{.use = end_use_, .num_free = capacity_ - std::min(num_taken, capacity_)};
  if (num_excess > 0) {
    cut.use = end_use_ - 1;
    std::vector<std::int64_t> listed;
    used_.append_to(listed, cut.use);
    std::vector<std::int64_t> held(listed);
    std::vector<std::int64_t> coming;
    for (std::size_t position = 0; position < next_uses.size(); ++position) {
      if (next_uses[position] != cut.use) continue;
      const bool is_held = is_held_[position] != 0;
      if (is_held || comers != Comers::none) (is_held ? held : coming).push_back(row_at(position));
    }
    const std::uint64_t num_kept = held.size() + coming.size() - num_excess;
    cut.new_bound = bound_of_lowest(coming, num_kept - std::min<std::uint64_t>(num_kept, held.size()));
    cut.held_bound = bound_of_lowest(held, num_kept);
    used_.clear(cut.use);
    for (const std::int64_t row : listed) {
      if (row < cut.held_bound) {
        used_.push(cut.use, row);
      } else {
        gone.push_back(row);
      }
    }
  }
  for (const std::int64_t row : gone) flip(static_cast<std::uint64_t>(row));
  out_rows.insert(out_rows.end(), gone.begin(), gone.end());
  return cut;
}

}  // namespace diskhop
