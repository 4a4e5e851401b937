#include "diskhop/id_set.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace diskhop {
namespace {

constexpr std::uint64_t kMostIds = std::uint64_t{1} << 32;
constexpr std::uint64_t kBitsPerWord = 64;
// A cache line: a rank reads this and one count.
constexpr std::uint64_t kWordsPerBlock = 8;
constexpr std::uint64_t kBitsPerBlock = kBitsPerWord * kWordsPerBlock;
// Ids come in any order, so that each look-up waits for memory; so many ahead are already on their way.
constexpr std::size_t kPrefetchDistance = 16;

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

constexpr std::uint64_t bit_of(std::uint64_t id) { return std::uint64_t{1} << (id % kBitsPerWord); }

[[noreturn]] void throw_missing(const char* what, std::uint64_t value) {
  throw std::out_of_range(std::string(what) + " " + std::to_string(value) + " is not in the set");
}

}  // namespace

// All accesses are relaxed: bits are only ever set while ids are collected, and whoever calls close() afterwards has
// waited for the threads that set them.

IdSet::IdSet(std::uint64_t limit)
    : limit_(limit), words_(limit > kMostIds ? 0 : divide_up(limit, kBitsPerBlock) * kWordsPerBlock) {
  if (limit > kMostIds) throw std::invalid_argument("limit " + std::to_string(limit) + " is above 2^32");
}

void IdSet::add(std::span<const std::uint32_t> ids) {
  if (closed_) throw std::logic_error("the set is closed");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids[i];
    if (id >= limit_) throw std::out_of_range("id " + std::to_string(id) + " is not below " + std::to_string(limit_));
    if (i + kPrefetchDistance < ids.size() && ids[i + kPrefetchDistance] < limit_) {
      __builtin_prefetch(&words_[ids[i + kPrefetchDistance] / kBitsPerWord]);
    }
    auto& word = words_[id / kBitsPerWord];
    // Most ids have been seen before: looking first keeps the line shared between the threads.
    if ((word.load(std::memory_order_relaxed) & bit_of(id)) == 0) {
      word.fetch_or(bit_of(id), std::memory_order_relaxed);
    }
  }
}

std::uint64_t IdSet::close() {
  if (closed_) return count_;
  counts_before_.resize(words_.size() / kWordsPerBlock);
  for (std::size_t block = 0; block < counts_before_.size(); ++block) {
    counts_before_[block] = static_cast<std::uint32_t>(count_);
    for (std::size_t word = 0; word < kWordsPerBlock; ++word) {
      count_ += std::popcount(words_[block * kWordsPerBlock + word].load(std::memory_order_relaxed));
    }
  }
  closed_ = true;
  return count_;
}

void IdSet::rank(std::span<const std::uint32_t> ids, std::span<std::uint32_t> ranks) const {
  require_closed();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids[i];
    if (i + kPrefetchDistance < ids.size() && ids[i + kPrefetchDistance] < limit_) {
      __builtin_prefetch(&words_[ids[i + kPrefetchDistance] / kBitsPerWord]);
      __builtin_prefetch(&counts_before_[ids[i + kPrefetchDistance] / kBitsPerBlock]);
    }
    if (!contains(id)) throw_missing("id", id);
    const std::uint64_t block = id / kBitsPerBlock;
    std::uint64_t smaller = counts_before_[block];
    for (std::uint64_t word = block * kWordsPerBlock; word < id / kBitsPerWord; ++word) {
      smaller += std::popcount(words_[word].load(std::memory_order_relaxed));
    }
    smaller += std::popcount(words_[id / kBitsPerWord].load(std::memory_order_relaxed) & (bit_of(id) - 1));
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
    std::uint64_t word = block * kWordsPerBlock;
    std::uint64_t bits = words_[word].load(std::memory_order_relaxed);
    while (left >= static_cast<std::uint64_t>(std::popcount(bits))) {
      left -= std::popcount(bits);
      bits = words_[++word].load(std::memory_order_relaxed);
    }
    for (; left > 0; --left) bits &= bits - 1;
    ids[i] = static_cast<std::uint32_t>(word * kBitsPerWord + std::countr_zero(bits));
  }
}

bool IdSet::contains(std::uint64_t id) const {
  return id < limit_ && (words_[id / kBitsPerWord].load(std::memory_order_relaxed) & bit_of(id)) != 0;
}

std::uint64_t IdSet::count_before(std::uint64_t block) const {
  return block < counts_before_.size() ? counts_before_[block] : count_;
}

std::uint64_t IdSet::find_block(std::uint64_t rank) const {
  const auto above = std::upper_bound(counts_before_.begin(), counts_before_.end(), rank);
  return static_cast<std::uint64_t>(above - counts_before_.begin()) - 1;
}

void IdSet::require_closed() const {
  if (!closed_) throw std::logic_error("the set is not closed");
}

}  // namespace diskhop
