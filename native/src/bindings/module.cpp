// The Python module: each group of bindings in a file of its own.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_native, module) {
  // An interrupted run ends while the error's frames still refer to its model, and to memory that this would report.
  nanobind::set_leak_warnings(false);
  module.doc() = "Compiled core of diskhop";
  diskhop::bind_activation(module);
  diskhop::bind_aggregate(module);
  diskhop::bind_attention(module);
  diskhop::bind_belady(module);
  diskhop::bind_clusters(module);
  diskhop::bind_columns(module);
  diskhop::bind_csc(module);
  diskhop::bind_embedding(module);
  diskhop::bind_generate(module);
  diskhop::bind_id_set(module);
  diskhop::bind_io(module);
  diskhop::bind_linear(module);
  diskhop::bind_order(module);
  diskhop::bind_packed_slots(module);
  diskhop::bind_propagate(module);
  diskhop::bind_rows(module);
  diskhop::bind_sampling(module);
  diskhop::bind_softmax(module);
  diskhop::bind_split_linear(module);
  diskhop::bind_streamed_lists(module);
  diskhop::bind_tiles(module);
}
