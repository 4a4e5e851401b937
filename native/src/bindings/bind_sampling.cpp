#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/base/permutation.hpp"
#include "diskhop/sampling/sampler.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

template <typename Index>
std::unique_ptr<NeighborSampler> make_sampler(const InputArray<std::int64_t>& indptr, const InputArray<Index>& indices,
                                              std::vector<std::int64_t> fanouts) {
  return make_neighbor_sampler<Index>({as_span(indptr), as_span(indices)}, std::move(fanouts));
}

template <typename Index>
std::unique_ptr<NeighborSampler> make_cached(const InputArray<std::int64_t>& indptr,
                                             const InputArray<std::uint64_t>& blocks, const InputArray<Index>& lists,
                                             SharedScan& scan, std::vector<std::int64_t> fanouts) {
  return make_cached_sampler<Index>(
      {.indptr = as_span(indptr), .blocks = as_span(blocks), .lists = as_span(lists), .scan = &scan},
      std::move(fanouts));
}

nb::tuple sample(NeighborSampler& sampler, const InputArray<std::int64_t>& seeds, std::uint64_t seed,
                 std::uint64_t purpose, std::uint64_t epoch, std::uint64_t batch, nb::handle_t<BufferPool> pool) {
  SampledBlocks blocks;
  {
    auto& memory = nb::cast<BufferPool&>(pool);
    const nb::gil_scoped_release unlocked;
    blocks = sampler.sample(as_span(seeds), {.seed = seed, .purpose = purpose, .epoch = epoch, .batch = batch}, memory);
  }
  const nb::capsule owner = lend(pool, std::move(blocks.memory));
  const auto as_array = [&owner]<typename Value>(std::span<Value> values) {
    return OutputArray<Value>(values.data(), {values.size()}, owner);
  };
  return nb::make_tuple(as_array(blocks.node_ids), as_array(blocks.indptr), as_array(blocks.sources),
                        as_array(blocks.edge_positions), std::move(blocks.num_sampled_nodes),
                        std::move(blocks.num_sampled_edges), blocks.read_counts.reads, blocks.read_counts.bytes_read);
}

OutputArray<std::int64_t> permute(std::uint64_t num_items, std::uint64_t seed, std::uint64_t purpose,
                                  std::uint64_t epoch) {
  std::vector<std::int64_t> order;
  {
    const nb::gil_scoped_release unlocked;
    order = keyed_permutation(num_items, seed, purpose, epoch);
  }
  return as_array(std::move(order));
}

template <typename Index>
void bind_make_sampler(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: a topology of another dtype must be refused, never copied.
  module.def("make_neighbor_sampler", &make_sampler<Index>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
             "fanouts"_a, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
             "Make a sampler over a topology; the draws are defined in random.hpp.");
  module.def("make_cached_sampler", &make_cached<Index>, "indptr"_a.noconvert(), "blocks"_a.noconvert(),
             "lists"_a.noconvert(), "scan"_a, "fanouts"_a, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
             nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>(),
             "Make a sampler over partly cached lists; see CachedTopology in sampler.hpp.");
}

}  // namespace

void bind_sampling(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<NeighborSampler>(module, "NeighborSampler")
      .def(
          "sample", &sample, "seeds"_a.noconvert(), "seed"_a, "purpose"_a, "epoch"_a, "batch"_a, "pool"_a,
          "Sample the in-neighbourhood of unique seeds. Returns the fields of a SampledBatch, with arrays in memory of "
          "the pool; sampler.hpp lists the errors.")
      .def_prop_ro("workspace_bytes", &NeighborSampler::workspace_bytes);
  bind_make_sampler<std::uint32_t>(module);
  bind_make_sampler<std::int64_t>(module);
  module.def("keyed_permutation", &permute, "num_items"_a, "seed"_a, "purpose"_a, "epoch"_a,
             "Return 0 .. num_items - 1 in an order that depends only on the key.");
}

}  // namespace diskhop
