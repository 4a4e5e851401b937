// Random permutations that depend only on their key.
#pragma once

#include <cstdint>
#include <vector>

namespace diskhop {

/// Returns 0 .. num_items - 1, sorted by the hash absorb(k, item), with k the seed, purpose and epoch absorbed in this
/// order. Memory: 16 bytes per item, 8 of them the result.
[[nodiscard]] std::vector<std::int64_t> keyed_permutation(std::uint64_t num_items, std::uint64_t seed,
                                                          std::uint64_t purpose, std::uint64_t epoch);

}  // namespace diskhop
