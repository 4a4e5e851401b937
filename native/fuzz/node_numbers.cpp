// Ids of nodes from a source or from lists: sets, counts, new numbers and clusters.
#include "diskhop/graph/id_set.hpp"
#include "diskhop/graph/order.hpp"
#include "diskhop/graph/stream_clusters.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

void number(Input& input) {
  IdSet ids(input.flag() ? input.below(1 << 16) : input.take<std::uint8_t>() * std::uint64_t{1 << 14});
  const std::vector<std::uint32_t> added = input.ids<std::uint32_t>(input.below(64), 1 << 16);
  ids.add(added);
  const std::uint64_t count = ids.close();
  const std::vector<std::uint32_t> asked =
      input.flag() ? added : input.ids<std::uint32_t>(input.below(64), std::size_t{1} << 16);
  std::vector<std::uint32_t> ranks(asked.size());
  ids.rank(asked, ranks);
  for (const std::uint32_t rank : ranks) require(rank < count, "a rank is below the number of ids");
  std::vector<std::uint32_t> back(ranks.size());
  ids.select(ranks, back);
  require(back == asked, "select() is the inverse of rank()");
  std::uint32_t id = 0;
  ids.select(input.ids<std::uint32_t>(1, count), {&id, 1});
}

template <typename Id, typename Count>
void order(Input& input) {
  const std::size_t num_nodes = 1 + input.below(64);
  std::vector<Count> counts(num_nodes);
  const std::vector<Id> ids = input.ids<Id>(input.below(128), num_nodes);
  require(count_ids<Id, Count>(ids, counts) <= ids.size(), "a position is one of the ids");
  const std::vector<Id> sorted = order_by_count<Id, Count>(counts);
  const std::vector<Id> numbers = invert_order<Id>(sorted);
  std::vector<Id> renumbered(ids.size());
  static_cast<void>(renumber_ids<Id, Id>(ids, numbers, renumbered));
  static_cast<void>(invert_order<Id>(input.ids<Id>(num_nodes, num_nodes)));
}

template <typename Index>
void cluster(Input& input) {
  const std::size_t num_nodes = 1 + input.below(32);
  const std::vector<std::int64_t> indptr = input.offsets<std::int64_t>(num_nodes, 6);
  const auto num_clusters = 1 + static_cast<std::uint32_t>(input.below(8));
  StreamClusters clusters(indptr, num_clusters, input.number(64));
  for (std::size_t pass = input.below(3); pass > 0; --pass) {
    clusters.start_pass();
    for (std::size_t left = 1 + input.below(3); left > 0; --left) {
      clusters.feed<Index>(input.ids<Index>(input.below(128), num_nodes));
    }
    clusters.end_pass();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range>([&] {
    switch (input.below(5)) {
      case 0:
        return number(input);
      case 1:
        return order<std::uint32_t, std::uint32_t>(input);
      case 2:
        return order<std::int64_t, std::int64_t>(input);
      case 3:
        return cluster<std::uint32_t>(input);
      default:
        return cluster<std::int64_t>(input);
    }
  });
  return 0;
}
