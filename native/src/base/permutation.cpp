#include "diskhop/base/permutation.hpp"

#include "base/radix_sort.hpp"
#include "diskhop/base/random.hpp"

namespace diskhop {

std::vector<std::int64_t> keyed_permutation(std::uint64_t num_items, std::uint64_t seed, std::uint64_t purpose,
                                            std::uint64_t epoch) {
  const std::uint64_t key = absorb(absorb(absorb(0, seed), purpose), epoch);
  // Only the hashes are sorted, in the memory of the result: the hash is a bijection, so each gives back its item, and
  // there are no ties.
  std::vector<std::int64_t> order(num_items);
  for (std::uint64_t item = 0; item < num_items; ++item) order[item] = static_cast<std::int64_t>(absorb(key, item));
  radix_sort(order, 64, [](std::int64_t hash) { return static_cast<std::uint64_t>(hash); });
  for (std::int64_t& hash : order) {
    hash = static_cast<std::int64_t>(absorbed_part(key, static_cast<std::uint64_t>(hash)));
  }
  return order;
}

}  // namespace diskhop
