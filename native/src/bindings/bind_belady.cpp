// Python bindings of Belady's rule; see belady.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/cache/belady.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

using Rows = InputArray<std::int64_t>;
using Uses = InputArray<std::uint32_t>;

nb::tuple as_tuple(CacheChanges changes) {
  return nb::make_tuple(as_array(std::move(changes.in_positions)), as_array(std::move(changes.out_rows)),
                        changes.num_hits);
}

OutputArray<std::uint32_t> look_back(NextUses& self, const Rows& rows) {
  std::vector<std::uint32_t> next_uses(rows.size());
  {
    const nb::gil_scoped_release unlocked;
    self.look_back(as_span(rows), next_uses);
  }
  return as_array(std::move(next_uses));
}

nb::tuple begin(BeladyCache& self, const NextUses& uses, std::uint64_t num_batches, bool fills) {
  CacheChanges changes;
  {
    const nb::gil_scoped_release unlocked;
    changes = self.begin(uses.first_uses(), num_batches, fills);
  }
  return as_tuple(std::move(changes));
}

nb::tuple step(BeladyCache& self, const Rows& rows, const Uses& next_uses) {
  CacheChanges changes;
  {
    const nb::gil_scoped_release unlocked;
    changes = self.step(as_span(rows), as_span(next_uses));
  }
  return as_tuple(std::move(changes));
}

}  // namespace

void bind_belady(nb::module_& module) {
  nb::class_<NextUses>(module, "NextUses", "Next use of each row in a span of batches; visited from the last batch on.")
      .def(nb::init<std::uint64_t, std::uint64_t>(), "num_rows"_a, "num_batches"_a)
      .def("look_back", &look_back, "rows"_a.noconvert(),
           "Return the next use of each row of the preceding batch: a batch number, or NEVER_USED.");
  nb::class_<BeladyCache>(module, "BeladyCache", "Cache of the rows with the nearest next use.")
      .def(nb::init<std::uint64_t, std::uint64_t>(), "num_rows"_a, "capacity"_a)
      .def("begin", &begin, "next_uses"_a, "num_batches"_a, "fills"_a,
           "Begin a span; returns (rows that enter, rows evicted, number of rows cached before).")
      .def("step", &step, "rows"_a.noconvert(), "next_uses"_a.noconvert(),
           "Run the next batch; returns (positions of rows that enter, rows evicted, number of hits).")
      .def("__len__", &BeladyCache::size);
  module.attr("NEVER_USED") = never_used;
}

}  // namespace diskhop
