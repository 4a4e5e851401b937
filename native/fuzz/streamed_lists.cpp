// Neighbour lists that stream through memory: sums over them, and attention.
#include "diskhop/hops/streamed_lists.hpp"

#include "diskhop/hops/streamed_attention.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

template <typename Value>
Matrix<Value> matrix_of(std::vector<std::remove_const_t<Value>>& values, std::size_t num_columns) {
  return {.data = values.data(),
          .num_rows = values.size() / num_columns,
          .num_columns = num_columns,
          .stride = num_columns};
}

template <typename Index>
void run(Input& input) {
  const std::size_t num_rows = 1 + input.below(12);
  const std::size_t num_sources = 1 + input.below(12);
  std::vector<std::int64_t> indptr = input.offsets<std::int64_t>(num_rows, 40);
  // The lists may begin among the first ones, or anywhere.
  const std::uint64_t shift = input.number(20);
  for (std::int64_t& begin : indptr) begin = static_cast<std::int64_t>(static_cast<std::uint64_t>(begin) + shift);
  const auto first_edge = static_cast<std::int64_t>(input.flag() ? shift : input.number(40));
  const std::vector<Index> indices = input.ids<Index>(input.below(256), num_sources);
  const StreamedLists lists{.indptr = indptr,
                            .indices = reinterpret_cast<const std::byte*>(indices.data()),
                            .index_bytes = sizeof(Index),
                            .first_edge = first_edge,
                            .num_edges = static_cast<std::int64_t>(indices.size())};
  const std::size_t num_columns = tile_columns * (1 + input.below(3));
  std::vector<float> memory((num_sources + 1) * num_columns + 16, 0.5F);
  const Block block = block_in(memory, num_sources, num_columns);
  PrefetchDistance edges_ahead;
  const std::size_t kind = input.below(3);
  if (kind == 0) {
    std::vector<float> out(num_rows * num_columns);
    return add_neighbor_sums(lists, block, matrix_of<float>(out, num_columns), 1, edges_ahead);
  }
  const std::size_t num_heads = 1 + input.below(2);
  std::vector<float> source_scores(num_sources * num_heads, input.take<float>());
  std::vector<float> target_scores(num_rows * num_heads, input.take<float>());
  std::vector<float> norms(num_rows * 2 * num_heads, 0.25F);
  if (kind == 1) {
    return add_attention_norms(lists, matrix_of<const float>(source_scores, num_heads),
                               matrix_of<const float>(target_scores, num_heads), 0.2F,
                               matrix_of<float>(norms, 2 * num_heads), 1);
  }
  std::vector<float> out(num_rows * num_columns);
  const AttendedHead head{.head = input.below(3),
                          .score_column = input.below(16),
                          .first_column = input.below(16),
                          .num_columns = input.below(16),
                          .out_column = input.below(16)};
  const AttentionTargets targets{.scores = matrix_of<const float>(target_scores, num_heads),
                                 .norms = matrix_of<const float>(norms, 2 * num_heads),
                                 .negative_slope = 0.2F};
  add_attended_rows(lists, block, {&head, 1}, targets, matrix_of<float>(out, num_columns), 1, edges_ahead);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  refuse_or<std::invalid_argument, DamagedListsError>(
      [&] { input.flag() ? run<std::uint32_t>(input) : run<std::int64_t>(input); });
  return 0;
}
