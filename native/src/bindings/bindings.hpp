// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace diskhop {

void bind_generate(nanobind::module_& module);
void bind_aggregate(nanobind::module_& module);
void bind_id_set(nanobind::module_& module);
void bind_io(nanobind::module_& module);
void bind_order(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);

}  // namespace diskhop
