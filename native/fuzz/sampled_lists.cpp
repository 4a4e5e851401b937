// Neighbour lists and columns as every sampler reads them from memory: topology of a dataset that is damaged.
#include <new>

#include "graphs.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

template <typename Index>
void sample_graph(Input& input) {
  const Graph<Index> graph(input);
  const Topology<Index> lists{graph.indptr, graph.indices, graph.graph_types()};
  const std::size_t num_types = graph.types ? 2 : 1;
  sample(input, lists, num_types, num_types, graph.indices.size(),
         [&](const auto& fanouts) { return make_neighbor_sampler<Index>(lists, fanouts); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range, std::length_error, std::domain_error>(
      [&] { input.flag() ? sample_graph<std::uint32_t>(input) : sample_graph<std::int64_t>(input); });
  return 0;
}
