// The Python module: each group of bindings in a file of its own.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_native, module) {
  // An interrupted run ends with its model, and the memory that this keeps, still held by the error's frames.
  nanobind::set_leak_warnings(false);
  module.doc() = "diskhop's compiled core";
  diskhop::bind_activation(module);
  diskhop::bind_aggregate(module);
  diskhop::bind_attention(module);
  diskhop::bind_belady(module);
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
  diskhop::bind_tiles(module);
}
