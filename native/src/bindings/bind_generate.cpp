// Python bindings of generated graphs; see generate.hpp. All functions fill arrays of the caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/generate/generate.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

template <typename Id>
void rmat(std::uint64_t num_nodes, const std::array<double, 4>& chances, std::uint64_t seed, std::uint64_t first,
          const InOutArray<Id>& sources, const InOutArray<Id>& destinations, bool is_permuted) {
  const nb::gil_scoped_release unlocked;
  rmat_edges(num_nodes, chances, is_permuted, seed, first, as_span(sources), as_span(destinations));
}

template <typename Id>
void uniform(std::uint64_t num_nodes, std::uint64_t seed, std::uint64_t first, const InOutArray<Id>& sources,
             const InOutArray<Id>& destinations) {
  const nb::gil_scoped_release unlocked;
  uniform_edges(num_nodes, seed, first, as_span(sources), as_span(destinations));
}

template <typename Id>
void block_model(std::uint64_t num_nodes, std::uint64_t num_classes, double homophily, std::uint64_t seed,
                 std::uint64_t first, const InOutArray<Id>& sources, const InOutArray<Id>& destinations) {
  const nb::gil_scoped_release unlocked;
  block_model_edges(num_nodes, num_classes, homophily, seed, first, as_span(sources), as_span(destinations));
}

template <typename Id>
void permute(std::uint64_t num_nodes, std::uint64_t seed, const std::string& part, const InOutArray<Id>& ids,
             bool is_inverse) {
  if (part != "ids" && part != "splits") throw std::invalid_argument("part '" + part + "' is not 'ids' or 'splits'");
  const nb::gil_scoped_release unlocked;
  permute_ids(num_nodes, seed, part == "ids" ? GraphPart::ids : GraphPart::splits,
              is_inverse ? Direction::inverse : Direction::forward, as_span(ids));
}

void classes(std::uint64_t seed, std::uint64_t num_classes, const InputArray<std::int64_t>& nodes,
             const InOutArray<std::int64_t>& drawn) {
  const nb::gil_scoped_release unlocked;
  node_classes(seed, num_classes, as_span(nodes), as_span(drawn));
}

void features(std::uint64_t seed, const InputArray<std::int64_t>& nodes, std::size_t dim,
              const InputArray<float>& means, const InputArray<std::int64_t>& node_classes,
              const InOutArray<float>& rows) {
  const nb::gil_scoped_release unlocked;
  feature_rows(seed, as_span(nodes), dim, as_span(means), as_span(node_classes), as_span(rows));
}

template <typename Id>
void bind_edges(nb::module_& module) {
  module.def("rmat_edges", &rmat<Id>, "num_nodes"_a, "chances"_a, "seed"_a, "first"_a, "sources"_a.noconvert(),
             "destinations"_a.noconvert(), "is_permuted"_a = true, "Fill R-MAT edges first, first + 1, ...");
  module.def("uniform_edges", &uniform<Id>, "num_nodes"_a, "seed"_a, "first"_a, "sources"_a.noconvert(),
             "destinations"_a.noconvert(), "Fill edges first, first + 1, ... with uniform ends.");
  module.def("block_model_edges", &block_model<Id>, "num_nodes"_a, "num_classes"_a, "homophily"_a, "seed"_a, "first"_a,
             "sources"_a.noconvert(), "destinations"_a.noconvert(),
             "Fill edges first, first + 1, ... of a stochastic block model; node v has class v mod num_classes.");
  module.def("permute_ids", &permute<Id>, "num_nodes"_a, "seed"_a, "part"_a, "ids"_a.noconvert(),
             "is_inverse"_a = false,
             "Replace ids by their images under a bijection that the seed and the part ('ids', 'splits') choose, or "
             "images by their ids.");
}

}  // namespace

void bind_generate(nb::module_& module) {
  bind_edges<std::uint32_t>(module);
  bind_edges<std::int64_t>(module);
  module.def("node_classes", &classes, "seed"_a, "num_classes"_a, "nodes"_a.noconvert(), "classes"_a.noconvert(),
             "Fill a class for each node, uniform over 0 .. num_classes - 1.");
  module.def("feature_rows", &features, "seed"_a, "nodes"_a.noconvert(), "dim"_a, "means"_a.noconvert(),
             "classes"_a.noconvert(), "rows"_a.noconvert(),
             "Fill rows (nodes, dim) of standard normal noise plus the mean of each node's class.");
}

}  // namespace diskhop
