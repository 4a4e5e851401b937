// Draws of random.hpp for several counters at once.
#pragma once

#include <cstdint>

#include "diskhop/base/random.hpp"

namespace diskhop {

/// Fills words with draw32(key, counter) for a vector of counters. Words: unsigned integers of 32 bits, of any number.
template <typename Words>
[[gnu::always_inline]] inline void draw_words(std::uint64_t key, const Words& counters, Words& words) {
  words = static_cast<std::uint32_t>(key) + (counters + 1) * golden32;
  words = (words ^ (words >> 16)) * 0x85ebca6bU;
  words ^= words >> 13;
  words = (words + static_cast<std::uint32_t>(key >> 32)) * 0xc2b2ae35U;
  words ^= words >> 16;
}

}  // namespace diskhop
