// Functions that each file of bindings adds to the module, and helpers that they share.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace diskhop {

/// Converts text with paths as Python does: bytes that are not UTF-8 become surrogates.
[[nodiscard]] nanobind::object as_text(const std::string& text);
/// Converts a path to the system's bytes (os.fsencode).
[[nodiscard]] std::string path_bytes(nanobind::handle path);
/// Sets an error of diskhop.errors, which nanobind raises.
void set_error(const char* class_name, const std::string& message);

void bind_activation(nanobind::module_& module);
void bind_aggregate(nanobind::module_& module);
void bind_attention(nanobind::module_& module);
void bind_belady(nanobind::module_& module);
void bind_clusters(nanobind::module_& module);
void bind_columns(nanobind::module_& module);
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
void bind_softmax(nanobind::module_& module);
void bind_split_linear(nanobind::module_& module);
void bind_streamed_lists(nanobind::module_& module);
void bind_tiles(nanobind::module_& module);

}  // namespace diskhop
