#include "diskhop/io/engine.hpp"

#include <stdexcept>
#include <utility>

#include "diskhop/base/owner_process.hpp"
#include "io/schedule.hpp"

namespace diskhop {
namespace {

/// Refuses to work in a forked child. A child shares the ring with its parent, whose completions it would take, and has
/// none of its parent's threads.
class OwnedEngine final : public Engine {
 public:
  explicit OwnedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  /// In a child, waiting for threads and requests of the parent would not end: the copy is not destroyed.
  ~OwnedEngine() override {
    if (!process_.is_here()) static_cast<void>(engine_.release());
  }

  OwnedEngine(const OwnedEngine&) = delete;
  OwnedEngine& operator=(const OwnedEngine&) = delete;
  OwnedEngine(OwnedEngine&&) = delete;
  OwnedEngine& operator=(OwnedEngine&&) = delete;

  Ticket submit(std::span<const Op> ops, Priority priority) override {
    process_.require_here();
    return engine_->submit(ops, priority);
  }
  void wait(Ticket ticket) override {
    process_.require_here();
    engine_->wait(ticket);
  }
  bool poll(Ticket ticket) override {
    process_.require_here();
    return engine_->poll(ticket);
  }
  std::string name() const override { return engine_->name(); }
  unsigned depth() const override { return engine_->depth(); }

 private:
  const OwnerProcess process_{"engine"};
  std::unique_ptr<Engine> engine_;
};

std::unique_ptr<Engine> make_unowned(const std::string& name, unsigned depth, std::shared_ptr<FaultInjector> injector) {
  if (name == "uring") return make_uring_engine(depth, std::move(injector));
  if (name == "threads") return make_threads_engine(depth, std::move(injector));
  throw std::invalid_argument("engine '" + name + "' is not one of: uring, threads");
}

}  // namespace

std::unique_ptr<Engine> make_engine(const std::string& name, unsigned depth, std::shared_ptr<FaultInjector> injector) {
  if (depth == 0 || depth > max_depth) {
    throw std::invalid_argument("an engine's depth must be 1 to " + std::to_string(max_depth) + ", got " +
                                std::to_string(depth));
  }
  return std::make_unique<OwnedEngine>(make_unowned(name, depth, std::move(injector)));
}

}  // namespace diskhop
