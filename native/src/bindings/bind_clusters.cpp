// Python bindings of clusters; see stream_clusters.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/graph/stream_clusters.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

template <typename Index>
void feed(StreamClusters& clusters, const InputArray<Index>& sources) {
  const nb::gil_scoped_release unlocked;
  clusters.feed<Index>(as_span(sources));
}

OutputArray<std::uint32_t> cluster_of(const StreamClusters& clusters) {
  const auto found = clusters.cluster_of();
  return as_array(std::vector<std::uint32_t>(found.begin(), found.end()));
}

}  // namespace

void bind_clusters(nb::module_& module) {
  nb::class_<StreamClusters>(module, "StreamClusters", "Clusters of nodes; see stream_clusters.hpp. One thread.")
      .def(
          "__init__",
          [](StreamClusters* self, const InputArray<std::int64_t>& indptr, std::uint32_t num_clusters,
             std::uint64_t capacity) { new (self) StreamClusters(as_span(indptr), num_clusters, capacity); },
          "indptr"_a.noconvert(), "num_clusters"_a, "capacity"_a, nb::keep_alive<1, 2>())
      .def("start_pass", &StreamClusters::start_pass, nb::call_guard<nb::gil_scoped_release>())
      .def("feed", &feed<std::uint32_t>, "sources"_a.noconvert())
      .def("feed", &feed<std::int64_t>, "sources"_a.noconvert())
      .def("end_pass", &StreamClusters::end_pass)
      .def("cluster_of", &cluster_of)
      .def_prop_ro("num_inner_edges", &StreamClusters::num_inner_edges);
}

}  // namespace diskhop
