#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/sampler.hpp"

namespace nb = nanobind;

namespace diskhop {
namespace {

template <typename Index>
nb::tuple sample(const InputArray<std::int64_t>& indptr, const InputArray<Index>& indices,
                 const InputArray<std::int64_t>& seeds, const std::vector<std::int64_t>& fanouts, std::uint64_t seed,
                 std::uint64_t purpose, std::uint64_t epoch, std::uint64_t batch) {
  SampledBlocks blocks;
  {
    const nb::gil_scoped_release unlocked;
    blocks = sample_neighbors<Index>({as_span(indptr), as_span(indices)}, as_span(seeds), fanouts,
                                     {.seed = seed, .purpose = purpose, .epoch = epoch, .batch = batch});
  }
  return nb::make_tuple(as_array(std::move(blocks.node_ids)), as_array(std::move(blocks.indptr)),
                        as_array(std::move(blocks.sources)), as_array(std::move(blocks.edge_positions)),
                        std::move(blocks.num_sampled_nodes), std::move(blocks.num_sampled_edges));
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
void bind_sample(nb::module_& module) {
  using namespace nb::literals;
  // noconvert: a topology of another dtype must be refused, never copied.
  module.def("sample_neighbors", &sample<Index>, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
             "fanouts"_a, "seed"_a, "purpose"_a, "epoch"_a, "batch"_a,
             "Sample the in-neighbourhood of unique seeds: the arrays of a SampledBatch. The draws are defined in "
             "random.hpp; sampler.hpp says what each error means.");
}

}  // namespace

void bind_sampling(nb::module_& module) {
  using namespace nb::literals;
  bind_sample<std::uint32_t>(module);
  bind_sample<std::int64_t>(module);
  module.def("keyed_permutation", &permute, "num_items"_a, "seed"_a, "purpose"_a, "epoch"_a,
             "0 .. num_items - 1 in an order that depends on the key alone.");
}

}  // namespace diskhop
