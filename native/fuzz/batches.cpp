// Batches as a trace or a chunk has them: rows for Belady's rule, nodes and edges to split by type.
#include "diskhop/cache/belady.hpp"
#include "diskhop/sampling/split_types.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

void cache(Input& input) {
  const std::uint64_t num_rows = 1 + input.below(200);
  const std::uint64_t num_batches = input.below(9);
  std::vector<std::vector<std::int64_t>> batches;
  for (std::uint64_t i = 0; i < num_batches; ++i) {
    batches.push_back(input.ids<std::int64_t>(input.below(24), num_rows));
    // Rows of a batch are distinct, but for what is damaged.
    if (input.below(8) == 0) continue;
    std::sort(batches.back().begin(), batches.back().end());
    batches.back().erase(std::unique(batches.back().begin(), batches.back().end()), batches.back().end());
  }
  NextUses uses(num_rows, num_batches);
  std::vector<std::vector<std::uint32_t>> next_uses(batches.size());
  for (std::size_t i = batches.size(); i > 0; --i) {
    next_uses[i - 1].resize(batches[i - 1].size());
    uses.look_back(batches[i - 1], next_uses[i - 1]);
  }
  BeladyCache resident(num_rows, input.number(64));
  static_cast<void>(resident.begin(uses.first_uses(), num_batches, input.flag()));
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (!next_uses[i].empty() && input.below(16) == 0) {
      next_uses[i][input.below(next_uses[i].size())] = input.take<std::uint32_t>();
    }
    const CacheChanges changes = resident.step(batches[i], next_uses[i]);
    require(changes.in_positions.size() <= batches[i].size(), "rows that enter are of the batch");
  }
}

void split(Input& input) {
  const std::size_t num_types = 1 + input.below(20);
  const std::vector<std::int64_t> node_starts = input.offsets<std::int64_t>(num_types, 6);
  std::vector<std::int64_t> destinations;
  std::vector<std::int64_t> list_starts{0};
  for (std::size_t left = 1 + input.below(3); left > 0; --left) {
    const std::size_t type = input.below(num_types);
    destinations.push_back(static_cast<std::int64_t>(type));
    const auto count =
        static_cast<std::uint64_t>(node_starts[type + 1]) - static_cast<std::uint64_t>(node_starts[type]);
    list_starts.push_back(list_starts.back() + static_cast<std::int64_t>(count % 64));
  }
  if (input.below(8) == 0) destinations[0] = input.take<std::int64_t>();
  const GraphTypes types(node_starts, list_starts, destinations);
  const std::vector<std::int64_t> edge_starts = input.offsets<std::int64_t>(destinations.size(), 10);
  const std::vector<std::int64_t> nodes = input.ids<std::int64_t>(input.below(16), types.num_nodes());
  const std::vector<std::int64_t> indptr = input.offsets<std::int64_t>(input.below(nodes.size() + 2), 4);
  const auto num_edges = static_cast<std::size_t>(indptr.back()) % 128;
  const std::vector<std::int32_t> sources = input.ids<std::int32_t>(num_edges, nodes.size());
  const std::vector<std::int64_t> positions = input.ids<std::int64_t>(num_edges, 30);
  static_cast<void>(split_types(types, edge_starts, nodes, indptr, sources, positions));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range>([&] { input.flag() ? cache(input) : split(input); });
  return 0;
}
