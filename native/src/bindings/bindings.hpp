// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace diskhop {

/// Text with paths in it, as Python shows paths: bytes that are no UTF-8 become surrogates.
[[nodiscard]] nanobind::object as_text(const std::string& text);
/// A path's bytes, as the system wants them (os.fsencode).
[[nodiscard]] std::string path_bytes(nanobind::handle path);
/// Sets an error of diskhop.errors, for nanobind to raise.
void set_error(const char* class_name, const std::string& message);

void bind_activation(nanobind::module_& module);
void bind_aggregate(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_belady(nanobind::module_& module);
void bind_csc(nanobind::module_& module);
void bind_embedding(nanobind::module_& module);
void bind_generate(nanobind::module_& module);
void bind_id_set(nanobind::module_& module);
void bind_io(nanobind::module_& module);
void bind_linear(nanobind::module_& module);
void bind_order(nanobind::module_& module);
void bind_packed_slots(nanobind::module_& module);
void bind_propagate(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_sampling(nanobind::module_& module);
void bind_tiles(nanobind::module_& module);

}  // namespace diskhop
