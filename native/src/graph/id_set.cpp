#include "diskhop/graph/id_set.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

constexpr std::uint64_t most_ids = std::uint64_t{1} << 32;
constexpr std::uint64_t word_bits = 64;
// A cache line: a rank reads this and one count.
constexpr std::uint64_t block_words = 8;
constexpr std::uint64_t block_bits = word_bits * block_words;
// Ids are in any order, so each look-up waits for memory; this many are prefetched.
constexpr std::size_t ids_ahead = 16;

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr std::uint64_t bit_of(std::uint64_t id) { return std::uint64_t{1} << (id % word_bits); }

[[noreturn]] void throw_missing(const char* what, std::uint64_t value) {
  throw std::out_of_range(std::string(what) + " " + std::to_string(value) + " is not in the set");
}

}  // namespace

// All accesses are relaxed: bits are only set while ids are added, and close() is called after those threads have
// ended.

IdSet::IdSet(std::uint64_t limit)
    : limit_(limit), words_(limit > most_ids ? 0 : divide_up(limit, block_bits) * block_words) {
  if (limit > most_ids) throw std::invalid_argument("limit " + std::to_string(limit) + " is above 2^32");
}

void IdSet::add(std::span<const std::uint32_t> ids) {
  if (is_closed_) throw std::logic_error("the set is closed");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids[i];
    if (id >= limit_) throw std::out_of_range("id " + std::to_string(id) + " is not below " + std::to_string(limit_));
    if (i + ids_ahead < ids.size() && ids[i + ids_ahead] < limit_) {
      __builtin_prefetch(&words_[ids[i + ids_ahead] / word_bits]);
    }
    auto& word = words_[id / word_bits];
    // Most ids were added before: reading first keeps the cache line shared between threads.
    if ((word.load(std::memory_order_relaxed) & bit_of(id)) == 0) {
      word.fetch_or(bit_of(id), std::memory_order_relaxed);
    }
  }
}

std::uint64_t IdSet::close() {
  if (is_closed_) return count_;
  counts_before_.resize(words_.size() / block_words);
  for (std::size_t block = 0; block < counts_before_.size(); ++block) {
    counts_before_[block] = static_cast<std::uint32_t>(count_);
    for (std::size_t word = 0; word < block_words; ++word) {
      count_ += std::popcount(words_[block * block_words + word].load(std::memory_order_relaxed));
    }
  }
  is_closed_ = true;
  return count_;
}

void IdSet::rank(std::span<const std::uint32_t> ids, std::span<std::uint32_t> ranks) const {
  require_closed();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids[i];
    if (i + ids_ahead < ids.size() && ids[i + ids_ahead] < limit_) {
      __builtin_prefetch(&words_[ids[i + ids_ahead] / word_bits]);
      __builtin_prefetch(&counts_before_[ids[i + ids_ahead] / block_bits]);
    }
    if (!contains(id)) throw_missing("id", id);
    const std::uint64_t block = id / block_bits;
    std::uint64_t smaller = counts_before_[block];
    for (std::uint64_t word = block * block_words; word < id / word_bits; ++word) {
      smaller += std::popcount(words_[word].load(std::memory_order_relaxed));
    }
    smaller += std::popcount(words_[id / word_bits].load(std::memory_order_relaxed) & (bit_of(id) - 1));
    ranks[i] = static_cast<std::uint32_t>(smaller);
  }
}

void IdSet::select(std::span<const std::uint32_t> ranks, std::span<std::uint32_t> ids) const {
  require_closed();
  std::uint64_t block = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::uint64_t rank = ranks[i];
    if (rank >= count_) throw_missing("rank", rank);
    if (rank < counts_before_[block] || rank >= count_before(block + 1)) block = find_block(rank);
    std::uint64_t left = rank - counts_before_[block];
    std::uint64_t word = block * block_words;
    std::uint64_t bits = words_[word].load(std::memory_order_relaxed);
    while (left >= static_cast<std::uint64_t>(std::popcount(bits))) {
      left -= std::popcount(bits);
      bits = words_[++word].load(std::memory_order_relaxed);
    }
    for (; left > 0; --left) bits &= bits - 1;
    ids[i] = static_cast<std::uint32_t>(word * word_bits + std::countr_zero(bits));
  }
}

bool IdSet::contains(std::uint64_t id) const {
  return id < limit_ && (words_[id / word_bits].load(std::memory_order_relaxed) & bit_of(id)) != 0;
}

std::uint64_t IdSet::count_before(std::uint64_t block) const {
  return block < counts_before_.size() ? counts_before_[block] : count_;
}

std::uint64_t IdSet::find_block(std::uint64_t rank) const {
  const auto above = std::upper_bound(counts_before_.begin(), counts_before_.end(), rank);
  return static_cast<std::uint64_t>(above - counts_before_.begin()) - 1;
}

void IdSet::require_closed() const {
  if (!is_closed_) throw std::logic_error("the set is not closed");
}

}  // namespace diskhop
