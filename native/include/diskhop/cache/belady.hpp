// Cache replacement when future accesses are known: Belady's rule with bypass (Ginex, sections 3.3 and 3.4).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace diskhop {

/// Next use of a row that no later batch of the span uses.
inline constexpr std::uint32_t never_used = std::numeric_limits<std::uint32_t>::max();

/// Finds the next use of each access, by a walk over a span of batches from the last to the first. Threading: one
/// caller.
class NextUses {
 public:
  /// Memory: 4 bytes per row of the table. Throws std::invalid_argument if num_batches is never_used or more.
  NextUses(std::uint64_t num_rows, std::uint64_t num_batches);

  /// Visits the next batch, in order from the last to the first; its rows are distinct. Sets next_uses[i] to the number
  /// of the later batch that uses rows[i] next, or never_used. Throws, with nothing changed: std::out_of_range for a
  /// row outside the table, std::invalid_argument for spans of different lengths, std::logic_error after the first
  /// batch.
  void look_back(std::span<const std::int64_t> rows, std::span<std::uint32_t> next_uses);

  /// First batch, of those visited, that uses each row of the table, or never_used.
  [[nodiscard]] std::span<const std::uint32_t> first_uses() const noexcept { return next_uses_; }

 private:
  std::vector<std::uint32_t> next_uses_;
  std::uint32_t num_left_;  // batches not visited yet
};

/// Changes of the cache: rows that enter, as ascending positions among the batch's rows, and rows that are evicted.
struct CacheChanges {
  std::vector<std::int64_t> in_positions;
  std::vector<std::int64_t> out_rows;
  std::uint64_t num_hits = 0;  // rows of the batch that were cached before
};

/// Caches up to `capacity` rows over spans of batches. After each batch it keeps, of the cached rows and the batch's
/// rows, those with the nearest next use. Among rows with the same next use, cached ones stay first, then lower ids. A
/// row that the span does not use again enters only if there is free space. It is evicted only when space is needed,
/// the longest unused first: the following span may use it.
///
/// A step takes O(rows of the batch) plus the rows evicted, and at most looks at one bit per batch of the span.
/// Threading: one caller.
class BeladyCache {
 public:
  /// Memory: 1 bit per row of the table, about 16 bytes per cached row, 10 per row of the largest batch, 1 KB per batch
  /// of a span.
  BeladyCache(std::uint64_t num_rows, std::uint64_t capacity);

  /// Begins a span. first_uses: the first use of every row of the table. `fills`: replace the cached rows by those that
  /// are used first; rows that enter must then be read before the first batch. Throws std::invalid_argument if
  /// first_uses has another length than the table, or names a batch outside the span.
  CacheChanges begin(std::span<const std::uint32_t> first_uses, std::uint64_t num_batches, bool fills);

  /// Runs the span's next batch: its distinct rows and their next uses. Throws, with nothing changed:
  /// std::invalid_argument for spans of different lengths, next uses that are not later batches of the span, or a
  /// cached row that should be in this batch and is not; std::out_of_range for a row outside the table;
  /// std::logic_error after the last batch.
  CacheChanges step(std::span<const std::int64_t> rows, std::span<const std::uint32_t> next_uses);

  /// Number of cached rows.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] bool holds(std::uint64_t row) const noexcept { return (cached_[row / 64] >> (row % 64) & 1) != 0; }

 private:
  struct Cutoff;
  // Which rows of a batch may enter.
  enum class Entry { none, used, all };

  // Lists of rows, in chunks of one arena.
  class RowLists {
   public:
    void reset(std::size_t num_lists);
    void push(std::size_t list, std::int64_t row) {
      List& found = lists_[list];
      const auto place = static_cast<std::uint32_t>(found.size % chunk_rows);
      if (place == 0) {
        const std::uint32_t chunk = take_chunk();
        chunks_[chunk].next = found.first;
        found.first = chunk;
      }
      chunks_[found.first].rows[place] = row;
      ++found.size;
      ++num_rows_;
    }
    void clear(std::size_t list);
    [[nodiscard]] std::uint64_t size(std::size_t list) const noexcept { return lists_[list].size; }
    [[nodiscard]] std::size_t num_lists() const noexcept { return lists_.size(); }
    /// Rows in all lists.
    [[nodiscard]] std::uint64_t num_rows() const noexcept { return num_rows_; }
    /// Appends a list's rows to `rows`.
    void append_to(std::vector<std::int64_t>& rows, std::size_t list) const;

   private:
    static constexpr std::uint32_t chunk_rows = 128;
    struct Chunk {
      std::array<std::int64_t, chunk_rows> rows;
      std::uint32_t next;  // chunk of the list, or of the free chunks
    };
    std::uint32_t take_chunk();

    struct List {
      std::uint64_t size = 0;
      std::uint32_t first = 0;  // chunk that is being filled
    };
    std::vector<Chunk> chunks_;
    std::vector<List> lists_;
    std::uint64_t num_rows_ = 0;
    std::uint32_t first_free_ = 0;
    std::uint32_t num_free_ = 0;
  };

  template <typename RowAt>
  CacheChanges update(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Entry entry);
  template <typename RowAt>
  Cutoff choose_cutoff(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Entry entry,
                       std::vector<std::int64_t>& out_rows);
  std::uint64_t count_next_uses(std::span<const std::uint32_t> next_uses, Entry entry);
  void clear_counts(std::span<const std::uint32_t> next_uses);
  void lower_end();
  void evict_unused(std::vector<std::int64_t>& out_rows);
  void flip(std::uint64_t row) noexcept { cached_[row / 64] ^= std::uint64_t{1} << (row % 64); }

  std::uint64_t num_rows_;
  std::uint64_t capacity_;
  std::uint64_t size_ = 0;
  std::vector<std::uint64_t> cached_;     // 1 bit per row of the table
  RowLists used_;                         // cached rows, by their next use
  std::deque<std::int64_t> unused_;       // cached rows that the span does not use again, the longest unused first
  std::vector<std::uint8_t> was_cached_;  // per position of an update: whether the row was cached before
  std::vector<std::uint64_t> uses_;       // per batch of an update: how many candidates have their next use there
  std::vector<std::uint64_t> is_used_;    // 1 bit per batch of the span: a row may have its next use there
  std::uint32_t next_batch_ = 0;
  std::uint32_t end_use_ = 0;  // no cached row has its next use in this batch or a later one
};

}  // namespace diskhop
