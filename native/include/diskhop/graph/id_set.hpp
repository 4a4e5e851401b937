// Which ids of a wide range occur, in a bit each, and what number each of them has among those that do.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace diskhop {

/// Ids below `limit` (at most 2^32), first collected, then closed and asked. The rank of an id is how many smaller ones
/// are in the set. Takes a bit an id and a sixteenth of that. Threading: add() from any number of threads; then
/// close(), by itself; then rank() and select() from any number of threads.
class IdSet {
 public:
  /// Throws std::invalid_argument if limit is above 2^32.
  explicit IdSet(std::uint64_t limit);
  IdSet(const IdSet&) = delete;
  IdSet& operator=(const IdSet&) = delete;

  /// Throws std::out_of_range, naming it, for an id that is not below limit; std::logic_error once closed.
  void add(std::span<const std::uint32_t> ids);
  /// Ends the collecting; returns how many ids there are.
  std::uint64_t close();

  /// ranks[i] becomes the rank of ids[i]. Throws std::out_of_range for an id that is not in the set, std::logic_error
  /// unless closed.
  void rank(std::span<const std::uint32_t> ids, std::span<std::uint32_t> ranks) const;
  /// ids[i] becomes the id whose rank is ranks[i]: the inverse of rank(). Throws as rank() does. Fast where ranks
  /// ascend.
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
  // For each block of words, how many ids lie before it.
  std::vector<std::uint32_t> counts_before_;
};

}  // namespace diskhop
