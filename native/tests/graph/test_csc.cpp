// Keys and lists: sorted keys are sorted lists, for any width, method, memory and number of threads.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include "diskhop/base/random.hpp"
#include "diskhop/io/stream_file.hpp"
#include "graph/edge_keys.hpp"
#include "graph/key_sort.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

constexpr std::uint64_t two_31 = std::uint64_t{1} << 31;
constexpr std::uint64_t two_32 = std::uint64_t{1} << 32;

std::uint64_t draw(std::uint64_t number, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<WideKey>(draw64(1, number)) * bound) >> 64);
}

IdColumn column_of(const std::vector<std::uint64_t>& ids) {
  return {.first = reinterpret_cast<const std::byte*>(ids.data()), .stride_bytes = 8, .is_signed = false};
}

template <typename Key>
void check_parts(const KeyLayout& layout, std::uint64_t source, std::uint64_t destination, std::uint64_t number) {
  const Key key = make_key<Key>(layout, source, destination, number);
  check(source_of(layout, key) == source && destination_of(layout, key) == destination, "a key gives back its ends");
  check(number_of(layout, key) == number, "and its number");
  check(key_width(key) <= layout.bits(), "and is no wider than said");
}

void keys_hold_ids_at_every_limit() {
  const std::vector<std::uint64_t> counts = {1, 2, 3, two_31 - 1, two_31, two_31 + 1, two_32 - 1, two_32, two_32 + 1};
  for (const std::uint64_t sources : counts) {
    for (const std::uint64_t destinations : counts) {
      for (const std::uint64_t numbers : {std::uint64_t{0}, std::uint64_t{1}, two_31, two_32 + 5}) {
        const KeyLayout layout = make_key_layout(sources, destinations, numbers);
        const std::uint64_t last_number = numbers == 0 ? 0 : numbers - 1;
        check_parts<WideKey>(layout, sources - 1, destinations - 1, last_number);
        check_parts<WideKey>(layout, 0, destinations - 1, 0);
        if (layout.key_bytes() > 8) continue;
        check_parts<std::uint64_t>(layout, sources - 1, destinations - 1, last_number);
        check_parts<std::uint64_t>(layout, 0, destinations - 1, 0);
      }
    }
  }
  check(make_key_layout(two_32, two_32, 0).key_bytes() == 8, "2^32 nodes at both ends still fit 8 bytes");
  check(make_key_layout(two_32 + 1, two_32, 0).key_bytes() == 16, "one more does not");
  check(make_key_layout(two_32 - 1, 1, 0).index_bytes() == 4, "indices are uint32 below 2^32 sources");
  check(make_key_layout(two_32, 1, 0).index_bytes() == 8, "and int64 from there");
  constexpr std::uint64_t most = std::uint64_t{1} << 62;
  check_throws<std::invalid_argument>([&] { (void)make_key_layout(0, 1, 0); }, "there are nodes");
  check_throws<std::invalid_argument>([&] { (void)make_key_layout(most + 1, 1, 0); }, "counts are bounded");
  check_throws<std::invalid_argument>([&] { (void)make_key_layout(most, most, 1 << 5); }, "keys have 128 bits");
}

void the_first_bad_id_is_found() {
  const KeyLayout layout = make_key_layout(10, 20, 0);
  const auto bad_end = [&](const IdColumn& sources, const IdColumn& destinations, std::size_t count) {
    return make_keys<std::uint64_t>(layout, 0, sources, destinations, count, [](auto...) {});
  };
  std::vector<std::uint64_t> good(3000, 9);
  check(!bad_end(column_of(good), column_of(good), 3000), "ids in range are taken");
  for (const std::uint64_t bad :
       {std::uint64_t{20}, two_32, std::uint64_t{1} << 63, std::numeric_limits<std::uint64_t>::max()}) {
    std::vector<std::uint64_t> ids = good;
    ids[2500] = ids[2600] = bad;
    const auto at_source = bad_end(column_of(ids), column_of(good), 3000);
    check(at_source && at_source->position == 2500 && at_source->is_source, "the first bad source is named");
    const auto at_destination = bad_end(column_of(good), column_of(ids), 3000);
    check(at_destination && at_destination->position == 2500 && !at_destination->is_source, "and destination");
  }
  const std::vector<std::int32_t> narrow = {5, -1, 3, 19, 5, -7};
  const IdColumn sources = {
      .first = reinterpret_cast<const std::byte*>(narrow.data()), .stride_bytes = 8, .id_bytes = 4};
  const IdColumn destinations = {
      .first = reinterpret_cast<const std::byte*>(narrow.data() + 1), .stride_bytes = 8, .id_bytes = 4};
  const auto found = bad_end(sources, destinations, 3);
  check(found && found->position == 0 && !found->is_source, "negative ids of 32 bits, two at a time");
}

template <typename Key>
void buckets_are_those_of_a_search(unsigned bits) {
  std::vector<Key> starts = {0};
  // Half of them are close together, like a hub's.
  for (std::uint64_t i = 0; i < 300; ++i) {
    Key start = static_cast<Key>(draw64(2, i)) << (bits > 64 ? bits - 64 : 0);
    if (bits < 64) start >>= 64 - bits;
    starts.push_back(i % 2 == 0 ? start : starts[1] + static_cast<Key>(i));
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  std::erase_if(starts, [&](Key start) { return key_width(start) > bits; });
  const BucketTable<Key> table(starts, bits);
  const auto check_key = [&](Key key) {
    if (key_width(key) > bits) return;
    const auto bucket = std::upper_bound(starts.begin(), starts.end(), key) - starts.begin() - 1;
    check(table(key) == static_cast<std::size_t>(bucket), "a key is in the last bucket that begins at or before it");
  };
  for (const Key start : starts) {
    check_key(start);
    check_key(start + 1);
    if (start > 0) check_key(start - 1);
  }
  for (std::uint64_t i = 0; i < 1000; ++i) check_key(static_cast<Key>(draw64(3, i)) >> (bits < 64 ? 64 - bits : 0));
  check_throws<std::invalid_argument>([&] { BucketTable<Key>({1, 2}, bits); }, "the first bucket begins at 0");
  check_throws<std::invalid_argument>([&] { BucketTable<Key>({0, 2, 2}, bits); }, "starts ascend");
}

template <typename Key>
void keys_come_out_sorted() {
  for (const std::size_t count : {0, 1, 2, 48, 49, 700, 5000, 40'000, 300'000}) {
    for (const unsigned bits : {0U, 1U, 9U, 31U, 32U, 33U, 50U, static_cast<unsigned>(8 * sizeof(Key) - 1)}) {
      for (const unsigned skew : {0U, 30U}) {
        const Key base = static_cast<Key>(12345) << (bits == 8 * sizeof(Key) - 1 ? 0 : 3);
        std::vector<Key> keys(count);
        std::vector<Key> scratch(count);
        for (std::size_t i = 0; i < count; ++i) {
          Key key = (static_cast<Key>(draw64(4, i)) << (sizeof(Key) > 8 ? 64 : 0)) | draw64(5, i);
          if (i % 3 == 0 && skew > 0) key >>= skew;  // a third of them are close together
          keys[i] = base + (bits == 0 ? 0 : key & ((static_cast<Key>(1) << bits) - 1));
        }
        std::vector<Key> expected = keys;
        std::sort(expected.begin(), expected.end());
        std::vector<Key> found;
        const auto take = [&](std::span<const Key> piece) { found.insert(found.end(), piece.begin(), piece.end()); };
        sort_keys<Key>(keys, scratch, base, bits, take);
        check(found == expected, "keys come out sorted, each as often as it went in");
      }
    }
  }
}

using Edge = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // destination, source, number

/// Edges of a graph with a hub, repeats, loops and nodes without edges.
std::vector<Edge> some_edges(std::uint64_t num_sources, std::uint64_t num_destinations, std::size_t count) {
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t destination = i % 2 == 0 ? num_destinations / 2 : draw(2 * i, num_destinations);
    const std::uint64_t source = i % 5 == 0 ? num_sources - 1 : draw(2 * i + 1, num_sources);
    edges.emplace_back(destination, source, i);
  }
  return edges;
}

std::vector<std::uint64_t> ends_of(const std::vector<Edge>& edges, bool sources) {
  std::vector<std::uint64_t> ids;
  for (const auto& [destination, source, number] : edges) ids.push_back(sources ? source : destination);
  return ids;
}

struct Lists {
  std::vector<std::int64_t> indptr;
  std::vector<std::uint64_t> indices;
  std::vector<std::int64_t> numbers;
  bool operator==(const Lists&) const = default;
};

Lists expected_lists(std::vector<Edge> edges, const KeyLayout& layout) {
  std::sort(edges.begin(), edges.end());
  Lists lists;
  for (std::uint64_t node = 0; node <= layout.num_destinations; ++node) {
    const auto first = std::lower_bound(edges.begin(), edges.end(), Edge{node, 0, 0});
    lists.indptr.push_back(first - edges.begin());
  }
  for (const auto& [destination, source, number] : edges) {
    lists.indices.push_back(source);
    if (layout.is_numbered) lists.numbers.push_back(static_cast<std::int64_t>(number));
  }
  return lists;
}

/// Appends the lists of sorted edges, up to the last one's destination.
void append(Lists& lists, const KeyLayout& layout, const SortedEdges& sorted) {
  const auto before = static_cast<std::int64_t>(lists.indices.size());
  const std::uint64_t first_node = lists.indptr.size();
  std::vector<std::int64_t> indptr(sorted.last_destination() + 1 - std::min(first_node, sorted.last_destination() + 1));
  sorted.copy_indptr(first_node, indptr);
  for (const std::int64_t start : indptr) lists.indptr.push_back(before + start);
  if (layout.index_bytes() == 4) {
    std::vector<std::uint32_t> indices(sorted.num_edges());
    sorted.copy_indices(0, sorted.num_edges(), reinterpret_cast<std::byte*>(indices.data()));
    lists.indices.insert(lists.indices.end(), indices.begin(), indices.end());
  } else {
    lists.indices.resize(lists.indices.size() + sorted.num_edges());
    sorted.copy_indices(0, sorted.num_edges(), reinterpret_cast<std::byte*>(lists.indices.data() + before));
  }
  if (layout.is_numbered) {
    lists.numbers.resize(lists.indices.size());
    sorted.copy_numbers(0, std::span(lists.numbers).subspan(static_cast<std::size_t>(before)));
  }
}

void finish(Lists& lists, const KeyLayout& layout) {
  lists.indptr.resize(layout.num_destinations + 1, static_cast<std::int64_t>(lists.indices.size()));
}

/// Sorts by way of the disk: each spill and each bucket by its own thread.
Lists lists_by_disk(const std::string& engine_name, const KeyLayout& layout, const std::vector<Edge>& edges,
                    std::uint64_t max_keys) {
  constexpr std::size_t num_spills = 3;
  const ScratchFolder folder;
  const auto engine = make_engine(engine_name, 8, nullptr);
  BufferPool pool(1 << 20);
  // Every 100th key, so that the hub is split too.
  std::vector<WideKey> keys;
  for (const auto& [destination, source, number] : edges) {
    keys.push_back(make_key<WideKey>(layout, source, destination, layout.is_numbered ? number : 0));
  }
  std::sort(keys.begin(), keys.end());
  std::vector<KeyWords> starts = {{}};
  for (std::size_t i = 100; i < keys.size(); i += 100) {
    const KeyWords words = {static_cast<std::uint64_t>(keys[i] >> 64), static_cast<std::uint64_t>(keys[i])};
    if (from_words<WideKey>(words) > from_words<WideKey>(starts.back())) starts.push_back(words);
  }
  std::vector<std::string> spill_paths;
  for (std::size_t i = 0; i < num_spills; ++i) spill_paths.push_back(folder.file("spill" + std::to_string(i)));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < num_spills; ++i) {
      threads.emplace_back([&, i] {
        const std::size_t first = edges.size() * i / num_spills;
        const std::size_t end = edges.size() * (i + 1) / num_spills;
        const std::vector<Edge> own(edges.begin() + static_cast<std::ptrdiff_t>(first),
                                    edges.begin() + static_cast<std::ptrdiff_t>(end));
        const auto spill = make_edge_spill(*engine, pool, spill_paths[i], layout, starts, 4096, 2);
        const auto bad = spill->add(first, column_of(ends_of(own, true)), column_of(ends_of(own, false)), own.size());
        check(!bad, "edges in range are taken");
        spill->finish();
      });
    }
  }
  const auto spilled = open_spilled_edges(*engine, pool, layout, spill_paths, starts, 2);
  std::vector<KeyRange> ranges;
  for (std::size_t bucket = 0; bucket < starts.size(); ++bucket) {
    for (const KeyRange& range : spilled->cut(bucket, max_keys)) ranges.push_back(range);
  }
  std::vector<std::unique_ptr<SortedEdges>> sorted(ranges.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t worker = 0; worker < 3; ++worker) {
      threads.emplace_back([&, worker] {
        for (std::size_t i = worker; i < ranges.size(); i += 3) sorted[i] = spilled->sort(ranges[i]);
      });
    }
  }
  Lists lists;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    check(sorted[i]->num_edges() == ranges[i].num_edges, "a range knows its number of edges");
    check(sorted[i]->num_edges() <= max_keys, "and no more than there is memory for");
    append(lists, layout, *sorted[i]);
  }
  finish(lists, layout);
  return lists;
}

Lists lists_by_table(const KeyLayout& layout, const std::vector<Edge>& edges, unsigned num_threads) {
  const auto table = make_edge_table(layout, edges.size());
  const std::vector<std::uint64_t> sources = ends_of(edges, true);
  const std::vector<std::uint64_t> destinations = ends_of(edges, false);
  check(!table->add(0, column_of(sources), column_of(destinations), edges.size()), "edges in range are taken");
  const auto sorted = table->sort(num_threads);
  Lists lists;
  append(lists, layout, *sorted);
  finish(lists, layout);
  return lists;
}

void lists_are_those_of_a_plain_sort(const std::string& engine_name) {
  for (const auto& [num_sources, num_destinations] : {std::pair<std::uint64_t, std::uint64_t>{1, 1},
                                                      {500, 300},
                                                      {two_32 - 1, 70},
                                                      {two_32, 70},
                                                      {std::uint64_t{1} << 60, 300}}) {
    for (const bool is_numbered : {false, true}) {
      const std::vector<Edge> edges = some_edges(num_sources, num_destinations, 3000);
      const KeyLayout layout = make_key_layout(num_sources, num_destinations, is_numbered ? edges.size() : 0);
      const Lists expected = expected_lists(edges, layout);
      check(lists_by_table(layout, edges, 1) == expected, "lists sorted in memory are those of a plain sort");
      for (const std::uint64_t max_keys : {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{1} << 20}) {
        check(lists_by_disk(engine_name, layout, edges, max_keys) == expected, "as are those sorted by the disk");
      }
    }
  }
}

// As in a file from elsewhere, whose blocks have right checksums.
void edges_of_another_bucket_are_refused() {
  const ScratchFolder folder;
  const auto engine = make_engine("threads", 8, nullptr);
  BufferPool pool(0);
  const std::string path = folder.file("spill");
  const KeyLayout layout = make_key_layout(300, 300, 0);  // keys of 18 bits
  const std::vector<KeyWords> starts = {{}, {.high = 0, .low = 100}, {.high = 0, .low = 5000}};
  const std::vector<std::string> paths = {path};
  const auto spill = [&](std::size_t bucket, std::uint64_t key, std::size_t num_bytes) {
    StreamFileWriter writer(*engine, pool, path, starts.size(), 4096, 1);
    for (int i = 0; i < 5; ++i) writer.append(bucket, key - starts[bucket].low, num_bytes);
    writer.finish();
  };
  const auto sort_all = [&](std::size_t bucket, std::uint64_t max_edges) {
    const auto spilled = open_spilled_edges(*engine, pool, layout, paths, starts, 2);
    std::uint64_t num_edges = 0;
    for (const KeyRange& range : spilled->cut(bucket, max_edges)) num_edges += spilled->sort(range)->num_edges();
    return num_edges;
  };
  for (const std::uint64_t max_edges : {std::uint64_t{1}, std::uint64_t{100}}) {
    spill(1, 4999, 2);
    check(sort_all(1, max_edges) == 5, "the last key of a bucket is taken");
    spill(1, 5000, 2);
    check_throws<DamagedFileError>([&] { sort_all(1, max_edges); }, "that of the next bucket is not");
    spill(2, (std::uint64_t{1} << 18) - 1, 3);
    check_throws<DamagedFileError>([&] { sort_all(2, max_edges); }, "nor is a destination that is no node");
  }
  spill(1, 4999, 3);
  check_throws<DamagedFileError>([&] { sort_all(1, 1); }, "a block has whole keys");
}

// All edges of such a bucket are the same, so that nothing reads them.
void a_bucket_of_one_key_is_refused_outside_the_graph() {
  const ScratchFolder folder;
  const auto engine = make_engine("threads", 8, nullptr);
  BufferPool pool(0);
  const std::string path = folder.file("spill");
  const KeyLayout layout = make_key_layout(300, 300, 0);  // keys of 18 bits, destinations of the upper 9
  const std::uint64_t last = (299U << 9U) + 299;
  const auto sort_bucket_at = [&](std::uint64_t key) {
    const std::vector<KeyWords> starts = {{}, {.high = 0, .low = key}, {.high = 0, .low = key + 1}};
    StreamFileWriter writer(*engine, pool, path, starts.size(), 4096, 1);
    writer.append(1, 0, 1);
    writer.finish();
    const auto spilled = open_spilled_edges(*engine, pool, layout, std::vector{path}, starts, 2);
    return spilled->sort(spilled->cut(1, 1).at(0))->last_destination();
  };
  check(sort_bucket_at(last) == 299, "the last key of the graph is taken");
  check_throws<DamagedFileError>([&] { sort_bucket_at(last + 1); }, "the next is not");
}

void numbers_without_bits_are_refused() {
  const KeyLayout layout = make_key_layout(4, 4, 2);
  const auto table = make_edge_table(layout, 8);
  const std::vector<std::uint64_t> ids(8);
  const auto add = [&] { static_cast<void>(table->add(0, column_of(ids), column_of(ids), ids.size())); };
  check_throws<std::out_of_range>(add, "eight edges, two numbers");
  check_throws<std::bad_alloc>([&] { static_cast<void>(make_edge_table(layout, std::uint64_t{1} << 60)); },
                               "more keys than there are addresses");
}

void many_edges_are_sorted_by_threads() {
  const std::vector<Edge> edges = some_edges(3000, 2000, 1'100'000);
  for (const std::uint64_t numbers : {std::uint64_t{0}, two_32}) {
    const KeyLayout layout = make_key_layout(3000, 2000, numbers);
    for (const unsigned num_threads : {0U, 3U}) {
      check(lists_by_table(layout, edges, num_threads) == expected_lists(edges, layout), "threads sort as one does");
    }
  }
}

}  // namespace

int main() {
  keys_hold_ids_at_every_limit();
  the_first_bad_id_is_found();
  for (const unsigned bits : {1U, 12U, 33U, 64U}) buckets_are_those_of_a_search<std::uint64_t>(bits);
  for (const unsigned bits : {65U, 100U, 128U}) buckets_are_those_of_a_search<WideKey>(bits);
  keys_come_out_sorted<std::uint64_t>();
  keys_come_out_sorted<WideKey>();
  for (const std::string& name : engine_names()) lists_are_those_of_a_plain_sort(name);
  many_edges_are_sorted_by_threads();
  numbers_without_bits_are_refused();
  edges_of_another_bucket_are_refused();
  a_bucket_of_one_key_is_refused_outside_the_graph();
}
