// Python bindings of slots of packed batches; see packed_slots.hpp.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <span>

#include "arrays.hpp"
#include "bindings.hpp"
#include "diskhop/cache/packed_slots.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace diskhop {
namespace {

template <typename Value>
std::span<const Value> as_optional_span(const std::optional<InputArray<Value>>& array) {
  return array ? as_span(*array) : std::span<const Value>{};
}

template <typename High>
void assign(const InputArray<std::int64_t>& ids, std::uint64_t num_rows, std::uint64_t num_resident,
            const std::optional<InputArray<std::int32_t>>& resident_slots,
            const std::optional<InputArray<std::int64_t>>& shared_rows, const InOutArray<std::uint16_t>& low,
            const InOutArray<High>& high, const InOutArray<std::uint32_t>& shared_ids,
            const InOutArray<std::uint32_t>& packed_ids) {
  const nb::gil_scoped_release unlocked;
  assign_slots<High>(as_span(ids), num_rows,
                     {.num_resident = num_resident,
                      .resident_slots = as_optional_span(resident_slots),
                      .shared_rows = as_optional_span(shared_rows)},
                     as_span(low), as_span(high), as_span(shared_ids), as_span(packed_ids));
}

template <typename High>
void load(const InputArray<std::uint16_t>& low, const InputArray<High>& high, std::int64_t num_resident,
          std::int64_t shift, const InOutArray<std::int64_t>& rows) {
  const nb::gil_scoped_release unlocked;
  load_slots<High>(as_span(low), as_span(high), num_resident, shift, as_span(rows));
}

template <typename High>
void bind_width(nb::module_& module) {
  module.def("assign_slots", &assign<High>, "ids"_a.noconvert(), "num_rows"_a, "num_resident"_a,
             "resident_slots"_a.noconvert().none(), "shared_rows"_a.noconvert().none(), "low"_a.noconvert(),
             "high"_a.noconvert(), "shared_ids"_a.noconvert(), "packed_ids"_a.noconvert(),
             "Fill a packed batch's slots, and list the rows that it needs; see packed_slots.hpp.");
  module.def("load_slots", &load<High>, "low"_a.noconvert(), "high"_a.noconvert(), "num_resident"_a, "shift"_a,
             "rows"_a.noconvert(), "Set rows to the slots, plus shift for those from num_resident on.");
}

}  // namespace

void bind_packed_slots(nb::module_& module) {
  bind_width<std::uint8_t>(module);
  bind_width<std::uint16_t>(module);
}

}  // namespace diskhop
