#include "diskhop/cache/belady.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

// Distance of prefetching, in rows.
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

// Bound below which `count` of the distinct rows lie. Changes their order.
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
  require(rows.size() == next_uses.size(), "rows and next uses must have the same length");
  check_rows(rows, next_uses_.size());
  --num_left_;
  for (std::size_t position = 0; position < rows.size(); ++position) {
    if (position + rows_ahead < rows.size()) __builtin_prefetch(&next_uses_[rows[position + rows_ahead]], 1);
    std::uint32_t& next_use = next_uses_[rows[position]];
    next_uses[position] = next_use;
    next_use = num_left_;
  }
}

// Which next uses are near enough to be cached: all before `use`, and at `use` the rows below a bound. num_free: rows
// without a next use that fit in addition, and how many such rows are cached.
struct BeladyCache::Cutoff {
  std::uint32_t use;
  std::uint64_t num_free;
  std::int64_t cached_bound = 0;
  std::int64_t new_bound = 0;

  [[nodiscard]] bool keeps(std::int64_t row, std::uint32_t next_use, bool is_cached) const noexcept {
    return (next_use < use) | ((next_use == use) & (row < (is_cached ? cached_bound : new_bound)));
  }
};

// -- lists --

void BeladyCache::RowLists::reset(std::size_t num_lists) {
  chunks_.clear();
  num_free_ = 0;
  num_rows_ = 0;
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
  num_rows_ -= found.size;
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
    : num_rows_(num_rows), capacity_(capacity), cached_((num_rows + 63) / 64) {}

CacheChanges BeladyCache::begin(std::span<const std::uint32_t> first_uses, std::uint64_t num_batches, bool fills) {
  require(first_uses.size() == num_rows_, "first uses must be of every row of the table");
  require(num_batches < never_used, "a span has fewer than 2^32 - 1 batches");
  for (const std::uint32_t use : first_uses) {
    require(use < num_batches || use == never_used, "a row's first use must be a batch of the span, or never");
  }
  used_.reset(num_batches);
  uses_.assign(num_batches + 1, 0);
  is_used_.assign(num_batches / 64 + 1, 0);
  unused_.clear();
  next_batch_ = 0;
  end_use_ = 0;
  was_cached_.resize(num_rows_);
  for (std::uint64_t row = 0; row < num_rows_; ++row) was_cached_[row] = holds(row);
  CacheChanges changes = update([](std::size_t position) { return static_cast<std::int64_t>(position); }, first_uses,
                                fills ? Entry::used : Entry::none);
  // Freed: it had the table's size, far larger than a batch.
  std::vector<std::uint8_t>().swap(was_cached_);
  return changes;
}

CacheChanges BeladyCache::step(std::span<const std::int64_t> rows, std::span<const std::uint32_t> next_uses) {
  const std::size_t num_batches = used_.num_lists();
  if (next_batch_ == num_batches) throw std::logic_error("all batches of the span were stepped over");
  require(rows.size() == next_uses.size(), "rows and next uses must have the same length");
  check_rows(rows, num_rows_);
  was_cached_.resize(rows.size());
  std::uint64_t num_cached = 0;
  bool is_within = true;
  const std::uint64_t* const cached = cached_.data();
  std::uint8_t* const is_cached = was_cached_.data();
  for (std::size_t position = 0; position < rows.size(); ++position) {
    const auto row = static_cast<std::uint64_t>(rows[position]);
    const std::uint32_t use = next_uses[position];
    is_within &= (use > next_batch_ && use < num_batches) || use == never_used;
    is_cached[position] = cached[row / 64] >> (row % 64) & 1;
    num_cached += is_cached[position];
  }
  require(is_within, "a next use must be a later batch of the span, or never");
  require(num_cached == used_.size(next_batch_),
          "cached rows of this batch must be those that earlier next uses named");
  used_.clear(next_batch_);
  ++next_batch_;
  return update([&](std::size_t position) { return rows[position]; }, next_uses, Entry::all);
}

// Decides about the batch's rows and the cached rows with later uses; cached rows of the batch are in no list.
template <typename RowAt>
CacheChanges BeladyCache::update(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Entry entry) {
  CacheChanges changes;
  Cutoff cut = choose_cutoff(row_at, next_uses, entry, changes.out_rows);
  const bool may_enter = entry != Entry::none;
  std::uint64_t num_hits = 0;
  // The decision about a row is unpredictable: first decided without a branch, then applied by kinds.
  constexpr std::size_t block_rows = 2048;
  std::array<std::uint32_t, block_rows> kept;
  std::array<std::uint32_t, block_rows> entering;
  std::array<std::uint32_t, block_rows> others;
  for (std::size_t begin = 0; begin < next_uses.size(); begin += block_rows) {
    const std::size_t count = std::min(block_rows, next_uses.size() - begin);
    std::size_t num_kept = 0;
    std::size_t num_entering = 0;
    std::size_t num_others = 0;
    for (std::uint32_t place = 0; place < count; ++place) {
      const std::uint32_t use = next_uses[begin + place];
      const bool is_cached = was_cached_[begin + place] != 0;
      const bool is_kept = cut.keeps(row_at(begin + place), use, is_cached) & (is_cached | may_enter);
      num_hits += is_cached;
      kept[num_kept] = place;
      num_kept += is_kept;
      entering[num_entering] = place;
      num_entering += is_kept & (!is_cached);
      others[num_others] = place;
      num_others += (!is_kept) & (is_cached | ((use == never_used) & (cut.num_free > 0)));
    }
    for (std::size_t i = 0; i < num_kept; ++i) used_.push(next_uses[begin + kept[i]], row_at(begin + kept[i]));
    for (std::size_t i = 0; i < num_entering; ++i) {
      changes.in_positions.push_back(static_cast<std::int64_t>(begin + entering[i]));
      flip(static_cast<std::uint64_t>(row_at(begin + entering[i])));
    }
    const std::size_t num_in = changes.in_positions.size();
    for (std::size_t i = 0; i < num_others; ++i) {
      const std::size_t position = begin + others[i];
      const std::int64_t row = row_at(position);
      const bool is_cached = was_cached_[position] != 0;
      if (next_uses[position] != never_used) {
        changes.out_rows.push_back(row);
        flip(static_cast<std::uint64_t>(row));
      } else if (is_cached) {
        unused_.push_back(row);
      } else if (entry == Entry::all && cut.num_free > 0) {
        unused_.push_back(row);
        --cut.num_free;
        changes.in_positions.push_back(static_cast<std::int64_t>(position));
        flip(static_cast<std::uint64_t>(row));
      }
    }
    const auto middle = changes.in_positions.begin() + static_cast<std::ptrdiff_t>(num_in);
    std::inplace_merge(middle - static_cast<std::ptrdiff_t>(num_entering), middle, changes.in_positions.end());
  }
  changes.num_hits = num_hits;
  size_ = size_ + changes.in_positions.size() - changes.out_rows.size();
  evict_unused(changes.out_rows);
  return changes;
}

// Evicts cached rows without a next use, the longest unused first, until the rest fits.
void BeladyCache::evict_unused(std::vector<std::int64_t>& out_rows) {
  for (; size_ > capacity_; --size_) {
    out_rows.push_back(unused_.front());
    flip(static_cast<std::uint64_t>(unused_.front()));
    unused_.pop_front();
  }
}

// Counts the batch's rows that may be cached by their next uses, in uses_, and raises end_use_ beyond them; the last
// count is of rows that are not used again. Returns the number of the others. Without a branch, which could not be
// predicted.
std::uint64_t BeladyCache::count_next_uses(std::span<const std::uint32_t> next_uses, Entry entry) {
  std::uint64_t* const counts = uses_.data();
  std::uint64_t* const is_used = is_used_.data();
  std::uint64_t num_used = 0;
  std::uint32_t end_use = end_use_;
  const auto unused = static_cast<std::uint32_t>(used_.num_lists());
  const std::uint8_t may_enter = entry != Entry::none;
  for (std::size_t position = 0; position < next_uses.size(); ++position) {
    const std::uint8_t is_cached = was_cached_[position];
    const std::uint32_t use = std::min(next_uses[position], unused);
    const std::uint64_t counted = use == unused ? is_cached : is_cached | may_enter;
    const bool is_later = (use != unused) & (counted != 0);
    counts[use] += counted;
    is_used[use / 64] |= counted << (use % 64);
    num_used += is_later;
    end_use = std::max(end_use, is_later ? use + 1 : 0);
  }
  end_use_ = end_use;
  return num_used;
}

// Sets the batch's counts to 0: those of a long span are many more than its rows.
void BeladyCache::clear_counts(std::span<const std::uint32_t> next_uses) {
  const auto unused = static_cast<std::uint32_t>(used_.num_lists());
  for (const std::uint32_t use : next_uses) uses_[std::min(use, unused)] = 0;
}

// Lowers end_use_ beyond the last next use before it that may have rows, to 0 if there is none.
void BeladyCache::lower_end() {
  std::size_t word = end_use_ / 64;
  std::uint64_t bits = is_used_[word] & ((std::uint64_t{1} << (end_use_ % 64)) - 1);
  while (bits == 0 && word > 0) bits = is_used_[--word];
  end_use_ = static_cast<std::uint32_t>(64 * word + static_cast<std::size_t>(std::bit_width(bits)));
}

// Evicts cached rows beyond the cutoff, except the batch's rows.
template <typename RowAt>
BeladyCache::Cutoff BeladyCache::choose_cutoff(const RowAt& row_at, std::span<const std::uint32_t> next_uses,
                                               Entry entry, std::vector<std::int64_t>& out_rows) {
  const std::uint64_t num_used = used_.num_rows() + count_next_uses(next_uses, entry);
  const std::uint64_t num_unused = unused_.size() + uses_[used_.num_lists()];
  std::uint64_t num_excess = num_used - std::min(num_used, capacity_);
  std::vector<std::int64_t> gone;
  while (num_excess > 0) {
    lower_end();
    const std::uint64_t num_last = used_.size(end_use_ - 1) + uses_[end_use_ - 1];
    if (num_last > num_excess) break;
    --end_use_;
    is_used_[end_use_ / 64] &= ~(std::uint64_t{1} << (end_use_ % 64));
    used_.append_to(gone, end_use_);
    used_.clear(end_use_);
    num_excess -= num_last;
  }
  const std::uint64_t num_taken = std::min(num_used, capacity_) + num_unused;
  Cutoff cut{.use = end_use_, .num_free = capacity_ - std::min(num_taken, capacity_)};
  if (num_excess > 0) {
    cut.use = end_use_ - 1;
    std::vector<std::int64_t> listed;
    used_.append_to(listed, cut.use);
    std::vector<std::int64_t> cached(listed);
    std::vector<std::int64_t> entering;
    for (std::size_t position = 0; position < next_uses.size(); ++position) {
      if (next_uses[position] != cut.use) continue;
      const bool is_cached = was_cached_[position] != 0;
      if (is_cached || entry != Entry::none) (is_cached ? cached : entering).push_back(row_at(position));
    }
    const std::uint64_t num_kept = cached.size() + entering.size() - num_excess;
    cut.new_bound = bound_of_lowest(entering, num_kept - std::min<std::uint64_t>(num_kept, cached.size()));
    cut.cached_bound = bound_of_lowest(cached, num_kept);
    used_.clear(cut.use);
    for (const std::int64_t row : listed) {
      if (row < cut.cached_bound) {
        used_.push(cut.use, row);
      } else {
        gone.push_back(row);
      }
    }
  }
  for (const std::int64_t row : gone) flip(static_cast<std::uint64_t>(row));
  out_rows.insert(out_rows.end(), gone.begin(), gone.end());
  clear_counts(next_uses);
  return cut;
}

}  // namespace diskhop
