// Neighbour lists as samplers read them from the disk, some of them resident.
#include "graphs.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

template <typename Index>
void sample_graph(Input& input) {
  const Graph<Index> graph(input);
  const std::size_t num_edges = graph.indices.size();
  std::vector<std::uint64_t> blocks;
  std::vector<Index> resident;
  const auto holds = input.take<std::uint64_t>();
  for (std::size_t list = 0; list < graph.num_lists; ++list) {
    if (list % 16 == 0) blocks.push_back(resident.size() << 16);
    const auto begin = static_cast<std::uint64_t>(graph.clean[list]);
    const auto end = static_cast<std::uint64_t>(graph.clean[list + 1]);
    if ((holds >> list % 64 & 1) == 0 || begin > end || end > num_edges) continue;
    blocks.back() |= std::uint64_t{1} << list % 16;
    resident.insert(resident.end(), graph.indices.begin() + static_cast<std::ptrdiff_t>(begin),
                    graph.indices.begin() + static_cast<std::ptrdiff_t>(end));
  }
  if (resident.empty()) resident.push_back(0);
  const MemoryFile content(graph.indices);
  const File file(content.path(), FileMode::read, false);
  BufferPool pool(0);
  // The manifest may promise more edges than the file has.
  const std::uint64_t promised = num_edges + input.below(4);
  SharedScan scan(engine(), file, {.num_rows = promised, .row_bytes = sizeof(Index), .row_stride = sizeof(Index)},
                  {.max_gap_bytes = 64, .max_read_bytes = 4096, .staging_bytes = 16384}, pool);
  const CachedTopology<Index> lists{
      .indptr = graph.indptr, .blocks = blocks, .lists = resident, .scan = &scan, .types = graph.graph_types()};
  const std::size_t num_types = graph.types ? 2 : 1;
  sample(input, lists, num_types, num_types, promised,
         [&](const auto& fanouts) { return make_cached_sampler<Index>(lists, fanouts); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, std::out_of_range, std::length_error, std::domain_error, IoError>(
      [&] { input.flag() ? sample_graph<std::uint32_t>(input) : sample_graph<std::int64_t>(input); });
  return 0;
}
