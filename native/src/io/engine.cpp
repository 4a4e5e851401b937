#include "diskhop/io/engine.hpp"

#include <stdexcept>
#include <utility>

#include "io/schedule.hpp"

namespace diskhop {

std::unique_ptr<Engine> make_engine(const std::string& name, unsigned depth, std::shared_ptr<FaultInjector> injector) {
  if (depth == 0 || depth > max_depth) {
    throw std::invalid_argument("an engine's depth must be 1 to " + std::to_string(max_depth) + ", got " +
                                std::to_string(depth));
  }
  if (name == "uring") return make_uring_engine(depth, std::move(injector));
  if (name == "threads") return make_threads_engine(depth, std::move(injector));
  throw std::invalid_argument("engine '" + name + "' is not one of: uring, threads");
}

}  // namespace diskhop
