// Ids of edges from a source: made into keys, sorted in memory and by way of the disk.
#include "diskhop/graph/csc.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

void check_lists(const SortedEdges& edges, const KeyLayout& layout) {
  std::vector<std::byte> indices(edges.num_edges() * layout.index_bytes());
  edges.copy_indices(0, edges.num_edges(), indices.data());
  std::vector<std::int64_t> numbers(edges.num_edges());
  edges.copy_numbers(0, numbers);
  std::vector<std::int64_t> indptr(std::min<std::uint64_t>(layout.num_destinations, 256) + 1);
  edges.copy_indptr(0, indptr);
  require(std::is_sorted(indptr.begin(), indptr.end()), "lists follow each other");
  require(static_cast<std::uint64_t>(indptr.back()) <= edges.num_edges(), "lists end with the edges");
}

template <typename Id>
void sort_ids(Input& input) {
  const std::uint64_t num_sources = input.number(300);
  const std::uint64_t num_destinations = input.number(300);
  const KeyLayout layout = make_key_layout(num_sources, num_destinations, input.number(300));
  const std::size_t count = input.below(128);
  const std::size_t stride = 1 + input.below(3);
  const std::vector<Id> sources = input.ids<Id>(count * stride, 256);
  const std::vector<Id> destinations = input.ids<Id>(count, 256);
  const auto column = [&](const std::vector<Id>& ids, std::size_t apart) {
    return IdColumn{.first = reinterpret_cast<const std::byte*>(ids.data()),
                    .stride_bytes = static_cast<std::ptrdiff_t>(apart * sizeof(Id)),
                    .is_signed = std::is_signed_v<Id>,
                    .id_bytes = sizeof(Id)};
  };
  if (input.flag()) {
    const auto table = make_edge_table(layout, count);
    if (table->add(0, column(sources, stride), column(destinations, 1), count)) return;
    const auto sorted = table->sort(1);
    require(sorted->num_edges() == count, "every edge is in a list");
    return check_lists(*sorted, layout);
  }
  BufferPool pool(0);
  std::vector<KeyWords> starts{{}};
  for (std::size_t left = input.below(4); left > 0; --left) starts.push_back({0, input.number(1 << 14)});
  const MemoryFile spilled(std::vector<std::byte>{});
  const auto spill = make_edge_spill(engine(), pool, spilled.path(), layout, starts, 4096, 2);
  if (spill->add(input.number(4), column(sources, stride), column(destinations, 1), count)) return;
  spill->finish();
  const std::vector<std::string> paths{spilled.path()};
  const auto edges = open_spilled_edges(engine(), pool, layout, paths, starts, 3);
  std::uint64_t num_edges = 0;
  for (std::size_t bucket = 0; bucket < starts.size(); ++bucket) {
    for (const KeyRange& range : edges->cut(bucket, 1 + input.below(64))) {
      const auto sorted = edges->sort(range);
      num_edges += sorted->num_edges();
      check_lists(*sorted, layout);
    }
  }
  require(num_edges == count, "every edge is in a list");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range>([&] {
    switch (input.below(4)) {
      case 0:
        return sort_ids<std::int32_t>(input);
      case 1:
        return sort_ids<std::uint32_t>(input);
      case 2:
        return sort_ids<std::int64_t>(input);
      default:
        return sort_ids<std::uint64_t>(input);
    }
  });
  return 0;
}
