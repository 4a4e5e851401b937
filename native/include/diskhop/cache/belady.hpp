// Which rows a cache keeps when the future is known: Belady's rule with bypass (Ginex, sections 3.3 and 3.4).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace diskhop {

/// Where no batch of the span uses a row again.
inline constexpr std::uint32_t never_used = std::numeric_limits<std::uint32_t>::max();

/// When each access's row is used next, found by walking over a span of batches from the last to the first.
/// Threading: one caller.
class NextUses {
 public:
  /// Takes 4 bytes a row of the table. Throws std::invalid_argument for never_used batches or more.
  NextUses(std::uint64_t num_rows, std::uint64_t num_batches);

  /// The batches in turn, the last first; a batch's rows are distinct. next_uses[i] = the batch after it that uses
  /// rows[i] next, or never_used. Throws, with nothing changed, std::out_of_range for a row outside the table,
  /// std::invalid_argument for spans of different lengths, std::logic_error when the first batch was given before.
  void look_back(std::span<const std::int64_t> rows, std::span<std::uint32_t> next_uses);

  /// Of every row: the first batch, of those given, that uses it, or never_used.
  [[nodiscard]] std::span<const std::uint32_t> first_uses() const noexcept { return next_uses_; }

 private:
  std::vector<std::uint32_t> next_uses_;
  std::uint32_t num_left_;  // batches not given yet
};

/// What changes in the cache: rows that come in, by their positions among those given, ascending, and rows that go.
struct CacheChanges {
  std::vector<std::int64_t> in_positions;
  std::vector<std::int64_t> out_rows;
  std::uint64_t num_hits = 0;  // rows given that were held before
};

/// A cache of `capacity` rows over spans of batches. After each batch it keeps, of what it held and what the batch
/// brought, the rows that are used soonest. Between rows used in the same batch those that it holds stay, then the
/// lower ids. What the span does not use again comes in only where room is free, and goes only for want of room, the
/// longest unused first: the span to come may use it.
///
/// A step takes O(rows of the batch) and at most a walk over the span's batches. Threading: one caller.
class BeladyCache {
 public:
  /// Takes a bit a row of the table, about 16 bytes a row of the cache, 10 of the largest batch, 1 KB a batch of a
  /// span.
  BeladyCache(std::uint64_t num_rows, std::uint64_t capacity);

  /// Begins a span with what is held: first_uses, of every row, tells when it is used first. With `fills` what is held
  /// becomes the rows that are used first, each that comes in to be read before the span's first batch. Throws
  /// std::invalid_argument where first_uses is not of every row, or names a batch outside the span.
  CacheChanges begin(std::span<const std::uint32_t> first_uses, std::uint64_t num_batches, bool fills);

  /// The span's next batch: its rows, distinct, and their next uses. Throws, with nothing changed,
  /// std::invalid_argument for spans of different lengths, next uses not after this batch and within the span, or rows
  /// held that were to be used in this batch and are not there; std::out_of_range for a row outside the table;
  /// std::logic_error after the last batch.
  CacheChanges step(std::span<const std::int64_t> rows, std::span<const std::uint32_t> next_uses);

  /// Rows held.
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  [[nodiscard]] bool holds(std::uint64_t row) const noexcept { return (held_[row / 64] >> (row % 64) & 1) != 0; }

 private:
  struct Cut;
  // Which of the rows given may come in.
  enum class Comers { none, used, all };

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
    }
    void clear(std::size_t list);
    [[nodiscard]] std::uint64_t size(std::size_t list) const noexcept { return lists_[list].size; }
    [[nodiscard]] std::size_t num_lists() const noexcept { return lists_.size(); }
    /// Puts a list's rows at the end of `rows`.
    void append_to(std::vector<std::int64_t>& rows, std::size_t list) const;

   private:
    static constexpr std::uint32_t chunk_rows = 128;
    struct Chunk {
      std::array<std::int64_t, chunk_rows> rows;
      std::uint32_t next;  // of the list, or of those free
    };
    std::uint32_t take_chunk();

    struct List {
      std::uint64_t size = 0;
      std::uint32_t first = 0;  // the chunk that is being filled
    };
    std::vector<Chunk> chunks_;
    std::vector<List> lists_;
    std::uint32_t first_free_ = 0;
    std::uint32_t num_free_ = 0;
  };

  template <typename RowAt>
  CacheChanges update(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Comers comers);
  template <typename RowAt>
  Cut choose_cut(const RowAt& row_at, std::span<const std::uint32_t> next_uses, Comers comers,
                 std::vector<std::int64_t>& out_rows);
  void flip(std::uint64_t row) noexcept { held_[row / 64] ^= std::uint64_t{1} << (row % 64); }

  std::uint64_t num_rows_;
  std::uint64_t capacity_;
  std::uint64_t size_ = 0;
  std::vector<std::uint64_t> held_;    // a bit a row of the table
  RowLists used_;                      // rows held, by their next use
  std::deque<std::int64_t> unused_;    // rows held that the span does not use again, the longest first
  std::vector<std::uint8_t> is_held_;  // of an update: by position, whether the row was held before
  std::vector<std::uint64_t> uses_;    // of an update: how many rows given that may be held are used when, or never
  std::uint32_t next_batch_ = 0;
  std::uint32_t end_use_ = 0;  // no row held is used in this batch or after it
};

}  // namespace diskhop
