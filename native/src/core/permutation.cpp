#include "diskhop/sampler.hpp"
#include "radix_sort.hpp"

namespace diskhop {

std::vector<std::int64_t> keyed_permutation(std::uint64_t num_items, std::uint64_t seed, std::uint64_t purpose,
                                            std::uint64_t epoch) {
  const std::uint64_t key = absorb(absorb(absorb(0, seed), purpose), epoch);
  std::vector<KeyedItem> items(num_items);
  for (std::uint64_t item = 0; item < num_items; ++item) items[item] = {absorb(key, item), item};
  // The hash is a bijection of the item, so that there are no ties.
  radix_sort(items, 64);
  std::vector<std::int64_t> order(num_items);
  for (std::uint64_t place = 0; place < num_items; ++place) order[place] = static_cast<std::int64_t>(items[place].item);
  return order;
}

}  // namespace diskhop
