// A hop of pre-propagation over lists, weights, scales and tables in files that are damaged or too short.
#include <memory>

#include "diskhop/hops/propagate.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

// Memory that the sanitizer watches, unlike a Buffer's.
struct Staging {
  explicit Staging(std::size_t count) : memory(std::aligned_alloc(4096, count), &std::free), num_bytes(count) {}
  [[nodiscard]] std::span<std::byte> span() const { return {static_cast<std::byte*>(memory.get()), num_bytes}; }
  std::unique_ptr<void, decltype(&std::free)> memory;
  std::size_t num_bytes;
};

/// The bytes of values, cut at any place now and then.
template <typename Value>
std::vector<std::byte> stored(Input& input, const std::vector<Value>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  const std::size_t cut = input.take<std::uint8_t>() < 8 ? input.below(bytes.size() + 1) : bytes.size();
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)};
}

std::vector<float> table_values(Input& input) {
  const auto value = input.take<float>();
  return std::vector<float>(group_rows * tile_columns, value);
}

template <typename Index>
void run(Input& input) {
  static const Staging small(1 << 20);
  static const Staging large(8 << 20);
  const std::size_t num_nodes = 1 + input.below(20);
  // Lists of more than one piece, now and then.
  const std::size_t times = input.below(8) == 0 ? 6000 : 1;
  std::vector<std::int64_t> indptr{0};
  for (std::size_t node = 0; node < num_nodes; ++node) {
    indptr.push_back(indptr.back() + static_cast<std::int64_t>(input.below(5) * times));
  }
  const auto num_edges = static_cast<std::uint64_t>(indptr.back());
  for (std::size_t left = input.below(4); left > 1; --left) {
    indptr[input.below(indptr.size())] = input.flag() ? input.take<std::int64_t>() : indptr[input.below(indptr.size())];
  }
  const std::vector<Index> some = input.ids<Index>(1 + input.below(64), num_nodes);
  std::vector<Index> indices(num_edges);
  for (std::size_t edge = 0; edge < num_edges; ++edge) indices[edge] = some[edge % some.size()];

  const MemoryFile indptr_bytes(stored(input, indptr));
  const MemoryFile indices_bytes(stored(input, indices));
  const MemoryFile weights_bytes(stored(input, std::vector<float>(num_edges, input.take<float>())));
  const MemoryFile scales_bytes(stored(input, std::vector<float>(group_rows, input.take<float>())));
  const MemoryFile features_bytes(stored(input, table_values(input)));
  const MemoryFile out_bytes(std::vector<std::byte>{});
  const File indptr_file(indptr_bytes.path(), FileMode::read, false);
  const File indices_file(indices_bytes.path(), FileMode::read, false);
  const File weights_file(weights_bytes.path(), FileMode::read, false);
  const File scales_file(scales_bytes.path(), FileMode::read, false);
  const File features_file(features_bytes.path(), FileMode::read, false);
  const File out_file(out_bytes.path(), FileMode::write, false);
  const Streaming streaming{.engine = engine(), .staging = (input.flag() ? small : large).span(), .num_threads = 1};
  const ListFiles lists{.indptr = &indptr_file,
                        .indices = &indices_file,
                        .index_bytes = sizeof(Index),
                        .num_nodes = num_nodes,
                        .num_edges = num_edges + (input.below(8) == 0 ? input.number(9) : 0),
                        .weights = input.flag() ? &weights_file : nullptr};
  const TableColumns features{.file = &features_file, .num_tiles = 1};
  const TableColumns out{.file = &out_file, .format = static_cast<ValueFormat>(input.below(3)), .num_tiles = 1};
  std::vector<float> memory((num_nodes + 1) * tile_columns + 16);
  const Block block = block_in(memory, num_nodes, tile_columns);
  static_cast<void>(load_block(streaming, features, input.flag() ? &scales_file : nullptr, block));
  PassFormula formula;
  if (input.flag()) formula.row_scale = &scales_file;
  if (input.flag()) formula.self_weight = 0.5F;
  if (input.flag()) formula.addend = features;
  const PassCounts counts = run_pass(streaming, lists, block, formula, out);
  require(counts.num_sources <= num_nodes, "sources are nodes");
}

template <typename Index>
void run_cold(Input& input) {
  static const Staging staging(1 << 20);
  const std::size_t num_rows = 1 + input.below(20);
  const auto first_row = static_cast<Index>(input.below(40));
  std::vector<Index> sources = input.ids<Index>(input.below(64), num_rows);
  for (Index& source : sources) source = static_cast<Index>(source + first_row);
  const std::uint64_t num_edges = sources.size();
  // Whole pages, as the file's writer leaves them.
  sources.resize((sources.size() * sizeof(Index) + 4095) / 4096 * 4096 / sizeof(Index));
  const MemoryFile bytes(stored(input, sources));
  const File file(bytes.path(), FileMode::read, false);
  const MemoryFile value_bytes(std::vector<std::byte>{});
  const File values(value_bytes.path(), FileMode::write, false);
  std::vector<float> memory((num_rows + 1) * tile_columns + 16);
  const Block rows = block_in(memory, num_rows, tile_columns);
  const Streaming streaming{.engine = engine(), .staging = staging.span(), .num_threads = 1};
  const ColdSources cold{.file = &file, .num_edges = num_edges, .index_bytes = sizeof(Index)};
  static_cast<void>(write_cold_values(streaming, cold, rows, first_row, values));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, DamagedListsError, IoError>([&] {
    switch (input.below(4)) {
      case 0:
        return run_cold<std::uint32_t>(input);
      case 1:
        return run_cold<std::int64_t>(input);
      case 2:
        return run<std::uint32_t>(input);
      default:
        return run<std::int64_t>(input);
    }
  });
  return 0;
}
