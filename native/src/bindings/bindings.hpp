// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace diskhop {

void bind_aggregate(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_io(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);

}  // namespace diskhop
