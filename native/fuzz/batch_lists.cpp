// Neighbour lists of a batch as layers read them: sums, attention and their gradients.
#include "diskhop/nn/aggregate.hpp"
#include "diskhop/nn/attention.hpp"
#include "input.hpp"

using namespace diskhop;
using namespace diskhop::fuzz;

namespace {

struct OwnMatrix {
  OwnMatrix(std::size_t rows, std::size_t columns, float value = 1)
      : values(rows * columns, value), num_rows(rows), num_columns(columns) {}
  [[nodiscard]] Matrix<float> matrix() { return {values.data(), num_rows, num_columns, num_columns}; }
  [[nodiscard]] Matrix<const float> read() const { return {values.data(), num_rows, num_columns, num_columns}; }
  std::vector<float> values;
  std::size_t num_rows;
  std::size_t num_columns;
};

void sum(Input& input, std::span<const std::int32_t> indptr, std::span<const std::int32_t> sources,
         std::size_t num_rows) {
  const std::size_t num_targets = indptr.size() - 1;
  const std::size_t num_columns = input.below(40);
  const std::vector<float> weights(input.flag() ? sources.size() : 0, 0.5F);
  const std::vector<float> self_weights(input.flag() ? num_targets : 0, 0.5F);
  const std::vector<std::int32_t> own =
      input.flag() ? input.ids<std::int32_t>(num_targets, num_rows) : std::vector<std::int32_t>{};
  const NeighborSums sums{.indptr = indptr,
                          .sources = sources,
                          .edge_weights = weights,
                          .self_weights = self_weights,
                          .own_rows = own,
                          .is_mean = input.flag()};
  OwnMatrix x(num_rows, num_columns);
  OwnMatrix out(num_targets, num_columns * (1 + input.below(2)));
  if (input.flag()) return aggregate<float, float>(sums, x.read(), out.matrix(), 1);
  BufferPool pool(0);
  aggregate_backward<float>(sums, out.read(), x.matrix(), pool, 1, input.flag());
}

void attend_to(Input& input, std::span<const std::int32_t> indptr, std::span<const std::int32_t> sources,
               std::size_t num_rows) {
  const NeighborLists lists{.indptr = indptr, .sources = sources, .has_loops = input.flag()};
  const std::size_t num_targets = lists.num_targets();
  const std::size_t num_heads = 1 + input.below(4);
  const std::size_t dim = 1 + input.below(20);
  // indptr may promise any number of slots; there is memory for those that sources have.
  const std::size_t num_slots =
      sources.size() == static_cast<std::size_t>(indptr.back()) ? lists.num_slots() : sources.size();
  const OwnMatrix of_sources(num_rows, num_heads);
  const OwnMatrix of_targets(num_targets, num_heads);
  OwnMatrix weights(num_slots, num_heads);
  OwnMatrix grad(num_slots, num_heads);
  OwnMatrix rows(num_rows, num_heads * dim);
  OwnMatrix out(num_targets, num_heads * dim);
  const AttentionScores scores{of_sources.read(), of_targets.read(), 0.2F};
  const AttentionDropout dropout{.probability = input.flag() ? 0.5 : 0.0, .seed = 3};
  const SlotWeights slots{.values = weights.read()};
  const TargetRange all{0, num_targets};
  OwnMatrix grad_sources(num_rows, num_heads);
  OwnMatrix grad_targets(num_targets, num_heads);
  switch (input.below(7)) {
    case 0:
      return attention(lists, scores, dropout, weights.matrix(), 1);
    case 1:
      return attention_backward(lists, scores, weights.read(), grad.read(), grad_sources.matrix(),
                                grad_targets.matrix(), 1);
    case 2:
      return slot_softmax(lists, grad.read(), dropout, weights.matrix(), 1);
    case 3:
      return attend<float>(lists, all, slots, rows.read(), out.matrix(), 1);
    case 4:
      return attend_backward_attention<float>(lists, all, slots, rows.read(), out.read(), grad.matrix(), 1);
    case 5:
      return slot_products<float>(lists, rows.read(), out.read(), weights.matrix(), 1);
    default:
      return attend_backward_rows(lists, all, slots, out.read(), rows.matrix(), 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t num_bytes) {
  Input input(data, num_bytes);
  const std::size_t num_targets = input.below(12);
  const std::vector<std::int32_t> indptr = input.offsets<std::int32_t>(num_targets, 12);
  const std::size_t num_rows = 1 + input.below(20);
  const auto promised = static_cast<std::size_t>(static_cast<std::uint32_t>(indptr.back()));
  const std::size_t num_sources = promised <= 144 && !input.flag() ? promised : input.below(150);
  const std::vector<std::int32_t> sources = input.ids<std::int32_t>(num_sources, num_rows);
  refuse_or<std::invalid_argument, std::out_of_range>(
      [&] { input.flag() ? sum(input, indptr, sources, num_rows) : attend_to(input, indptr, sources, num_rows); });
  return 0;
}
