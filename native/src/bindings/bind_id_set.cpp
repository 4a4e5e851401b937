// Python bindings of id sets; see id_set.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/graph/id_set.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

using Ids = InputArray<std::uint32_t>;

void add(IdSet& set, const Ids& ids) {
  const nb::gil_scoped_release unlocked;
  set.add(as_span(ids));
}

template <void (IdSet::*look_up)(std::span<const std::uint32_t>, std::span<std::uint32_t>) const>
OutputArray<std::uint32_t> look_up_all(const IdSet& set, const Ids& given) {
  std::vector<std::uint32_t> found;
  {
    const nb::gil_scoped_release unlocked;
    found.resize(given.size());
    (set.*look_up)(as_span(given), found);
  }
  return as_array(std::move(found));
}

}  // namespace

void bind_id_set(nb::module_& module) {
  nb::class_<IdSet>(module, "IdSet")
      .def(nb::init<std::uint64_t>(), "limit"_a)
      .def("add", &add, "ids"_a.noconvert())
      .def("close", &IdSet::close, nb::call_guard<nb::gil_scoped_release>())
      .def("rank", &look_up_all<&IdSet::rank>, "ids"_a.noconvert())
      .def("select", &look_up_all<&IdSet::select>, "ranks"_a.noconvert());
}

}  // namespace diskhop
