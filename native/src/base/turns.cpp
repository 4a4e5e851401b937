#include "base/turns.hpp"

#include <dlfcn.h>

#include <system_error>
#include <thread>
#include <vector>

namespace diskhop {

void run_in_threads(std::size_t num_threads, void (*run)(void* data), void* data) {
  if (num_threads <= 1) return run(data);
  // Entry point of "omp parallel" in the loaded runtime: GCC's, or another one with its interface.
  using Parallel = void (*)(void (*)(void*), void*, unsigned num_threads, unsigned flags);
  if (const auto parallel = reinterpret_cast<Parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"))) {
    return parallel(run, data, static_cast<unsigned>(num_threads), 0);
  }
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < num_threads) helpers.emplace_back(run, data);
  } catch (const std::system_error&) {  // no more threads available: the running ones do all turns
  }
  run(data);
}

}  // namespace diskhop
