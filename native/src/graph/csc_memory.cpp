// Sorting of edges that fit in memory, by all threads.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/turns.hpp"
#include "diskhop/base/random.hpp"
#include "graph/edge_keys.hpp"
#include "graph/sorted_keys.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t min_parallel_keys = std::uint64_t{1} << 20;
constexpr std::size_t num_buckets = 512;
constexpr std::size_t samples_per_bucket = 64;

// Memory for the keys, twice. Throws std::bad_alloc.
template <typename Key>
Buffer make_memory(std::uint64_t num_edges) {
  if (num_edges > (std::uint64_t{1} << 62) / (2 * sizeof(Key))) throw std::bad_alloc();
  return Buffer(2 * num_edges * sizeof(Key));
}

template <typename Key>
class Table final : public EdgeTable {
 public:
  Table(const KeyLayout& layout, std::uint64_t num_edges)
      : layout_(layout),
        memory_(make_memory<Key>(num_edges)),
        keys_(reinterpret_cast<Key*>(memory_.data()), num_edges),
        scratch_(keys_.data() + num_edges, num_edges) {}

  std::optional<BadEnd> add(std::uint64_t first_number, const IdColumn& sources, const IdColumn& destinations,
                            std::size_t count) override {
    return make_keys<Key>(layout_, first_number, sources, destinations, count,
                          [&](std::size_t first, std::span<const Key> keys) {
                            std::copy(keys.begin(), keys.end(), keys_.begin() + (first_number + first));
                          });
  }

  std::unique_ptr<SortedEdges> sort(unsigned num_threads) override {
    if (keys_.size() < min_parallel_keys || num_threads <= 1) {
      sort_in_place<Key>(keys_, scratch_, 0, layout_.bits(), keys_.data());
    } else {
      sort_by_threads(num_threads);
    }
    return std::make_unique<SortedKeys<Key, Buffer>>(layout_, std::move(memory_), std::exchange(keys_, {}));
  }

 private:
  void sort_by_threads(unsigned num_threads) {
    const BucketTable<Key> buckets(sample_starts(), layout_.bits());
    const std::vector<std::size_t> begins = partition(buckets, num_threads);
    share_turns(buckets.starts().size(), num_threads, [&](std::size_t bucket, std::size_t) {
      const std::size_t begin = begins[bucket];
      const std::size_t length = begins[bucket + 1] - begin;
      const Key first = buckets.starts()[bucket];
      const Key last = bucket + 1 < buckets.starts().size() ? buckets.starts()[bucket + 1] - 1 : last_key<Key>(layout_);
      sort_in_place<Key>(scratch_.subspan(begin, length), keys_.subspan(begin, length), first,
                         key_width<Key>(last - first), keys_.data() + begin);
    });
  }

  /// Chooses keys that divide all edges into about equal buckets.
  std::vector<Key> sample_starts() const {
    std::vector<Key> sample(num_buckets * samples_per_bucket);
    for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = keys_[scale64(mix64(i), keys_.size())];
    std::sort(sample.begin(), sample.end());
    std::vector<Key> starts = {0};
    for (std::size_t i = samples_per_bucket; i < sample.size(); i += samples_per_bucket) {
      if (sample[i] > starts.back()) starts.push_back(sample[i]);
    }
    return starts;
  }

  /// Moves keys from keys_ to scratch_, bucket by bucket; returns where each begins, and the end. Each of num_slices
  /// slices has its own places in every bucket, so that threads do not wait for each other.
  std::vector<std::size_t> partition(const BucketTable<Key>& buckets, unsigned num_slices) {
    const std::size_t count = buckets.starts().size();
    std::vector<std::vector<std::size_t>> places(num_slices, std::vector<std::size_t>(count));
    const auto slice = [&](std::size_t number) {
      const std::size_t begin = keys_.size() * number / num_slices;
      return keys_.subspan(begin, keys_.size() * (number + 1) / num_slices - begin);
    };
    share_turns(num_slices, num_slices, [&](std::size_t number, std::size_t) {
      std::vector<std::size_t>& counts = places[number];
      for (const Key key : slice(number)) ++counts[buckets(key)];
    });
    std::vector<std::size_t> begins;
    std::size_t begin = 0;
    for (std::size_t bucket = 0; bucket < count; ++bucket) {
      begins.push_back(begin);
      for (auto& counts : places) begin += std::exchange(counts[bucket], begin);
    }
    begins.push_back(begin);
    share_turns(num_slices, num_slices, [&](std::size_t number, std::size_t) {
      std::vector<std::size_t>& ends = places[number];
      for (const Key key : slice(number)) scratch_[ends[buckets(key)]++] = key;
    });
    return begins;
  }

  KeyLayout layout_;
  Buffer memory_;
  std::span<Key> keys_;
  std::span<Key> scratch_;
};

}  // namespace

std::unique_ptr<EdgeTable> make_edge_table(const KeyLayout& layout, std::uint64_t num_edges) {
  if (layout.key_bytes() == 8) return std::make_unique<Table<std::uint64_t>>(layout, num_edges);
  return std::make_unique<Table<WideKey>>(layout, num_edges);
}

}  // namespace diskhop
