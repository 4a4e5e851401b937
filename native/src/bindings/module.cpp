// The Python module: each group of bindings in a file of its own.
#include <nanobind/nanobind.h>

#include "bindings.hpp"

NB_MODULE(_native, module) {
  module.doc() = "diskhop's compiled core";
  diskhop::bind_id_set(module);
  diskhop::bind_io(module);
  diskhop::bind_order(module);
  diskhop::bind_rows(module);
  diskhop::bind_sampling(module);
  diskhop::bind_csc(module);
}
