// Set of ids in a wide range, one bit each, and the rank of each id in the set.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace diskhop {

/// Ids below `limit` (at most 2^32), first added, then closed and queried. The rank of an id is the number of smaller
/// ids in the set. Memory: 1 bit per id of the range, plus a sixteenth. Threading: add() from any number of threads,
/// then close() alone, then rank() and select() from any number of threads.
class IdSet {
 public:
  /// Throws std::invalid_argument if limit is above 2^32.
  explicit IdSet(std::uint64_t limit);
  IdSet(const IdSet&) = delete;
  IdSet& operator=(const IdSet&) = delete;

  /// Throws std::out_of_range naming an id that is not below limit; std::logic_error once closed.
  void add(std::span<const std::uint32_t> ids);
  /// Ends adding and returns the number of ids.
  std::uint64_t close();

  /// Sets ranks[i] to the rank of ids[i]. Throws std::out_of_range for an id that is not in the set, std::logic_error
  /// unless closed.
  void rank(std::span<const std::uint32_t> ids, std::span<std::uint32_t> ranks) const;
  /// Sets ids[i] to the id of rank ranks[i], the inverse of rank(). Throws as rank() does. Fast if ranks ascend.
  void select(std::span<const std::uint32_t> ranks, std::span<std::uint32_t> ids) const;

 private:
  [[nodiscard]] bool contains(std::uint64_t id) const;
  [[nodiscard]] std::uint64_t count_before(std::uint64_t block) const;
  [[nodiscard]] std::uint64_t find_block(std::uint64_t rank) const;
  void require_closed() const;

  std::uint64_t limit_;
  std::uint64_t count_ = 0;
  bool is_closed_ = false;
  std::vector<std::atomic<std::uint64_t>> words_;
  // Per block of words: number of ids before it.
  std::vector<std::uint32_t> counts_before_;
};

}  // namespace diskhop
