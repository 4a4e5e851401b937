// Python bindings of hot order; see order.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/graph/order.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

template <typename Id, typename Count>
std::size_t count(const InputArray<Id>& ids, const InOutArray<Count>& counts) {
  const nb::gil_scoped_release unlocked;
  return count_ids<Id, Count>(as_span(ids), as_span(counts));
}

template <typename Id, typename Count>
OutputArray<Id> order(const InputArray<Count>& counts) {
  std::vector<Id> nodes;
  {
    const nb::gil_scoped_release unlocked;
    nodes = order_by_count<Id, Count>(as_span(counts));
  }
  return as_array(std::move(nodes));
}

template <typename Id>
OutputArray<Id> invert(const InputArray<Id>& ids) {
  std::vector<Id> inverse;
  {
    const nb::gil_scoped_release unlocked;
    inverse = invert_order<Id>(as_span(ids));
  }
  return as_array(std::move(inverse));
}

template <typename Given, typename Id>
std::size_t renumber(const InputArray<Given>& ids, const InputArray<Id>& new_ids, const InOutArray<Id>& renumbered) {
  const nb::gil_scoped_release unlocked;
  return renumber_ids<Given, Id>(as_span(ids), as_span(new_ids), as_span(renumbered));
}

template <typename Given, typename Other>
void bind_given(nb::module_& module) {
  module.def("count_ids", &count<Given, Other>, "ids"_a.noconvert(), "counts"_a.noconvert(),
             "Count each id; returns the position of the first that is no node, or len(ids).");
  module.def(
      "renumber_ids", &renumber<Given, Other>, "ids"_a.noconvert(), "new_ids"_a.noconvert(), "renumbered"_a.noconvert(),
      "Set renumbered[i] to new_ids[ids[i]]; returns the position of the first id that is no node, or len(ids).");
}

}  // namespace

void bind_order(nb::module_& module) {
  bind_given<std::uint32_t, std::uint32_t>(module);
  bind_given<std::uint32_t, std::int64_t>(module);
  bind_given<std::int64_t, std::uint32_t>(module);
  bind_given<std::int64_t, std::int64_t>(module);
  module.def("order_by_count_uint32", &order<std::uint32_t, std::uint32_t>, "counts"_a.noconvert());
  module.def("order_by_count_uint32", &order<std::uint32_t, std::int64_t>, "counts"_a.noconvert(),
             "Return the nodes (below 2^32) from the highest count to the lowest, ties to the lower id, as uint32.");
  module.def("order_by_count_int64", &order<std::int64_t, std::uint32_t>, "counts"_a.noconvert());
  module.def("order_by_count_int64", &order<std::int64_t, std::int64_t>, "counts"_a.noconvert(),
             "Return the nodes from the highest count to the lowest, ties to the lower id, as int64.");
  module.def("invert_order", &invert<std::uint32_t>, "order"_a.noconvert());
  module.def("invert_order", &invert<std::int64_t>, "order"_a.noconvert(),
             "Return the inverse of a permutation: inverse[order[i]] = i.");
}

}  // namespace diskhop
