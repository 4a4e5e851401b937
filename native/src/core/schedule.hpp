// What both engines share: which transfer comes next, and what its result means. No system calls, no waiting.
//
// A *batch* is the ops of one ticket, a *request* one of its ops, a *transfer* one system-level operation of a request:
// short ones resume as another transfer, interrupted ones are tried again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "diskhop/engine.hpp"

namespace diskhop {

struct Batch;

struct Request {
  Op op;
  Batch* batch;
  std::uint64_t done_bytes = 0;
  unsigned tries = 0;  // since the last byte of progress
};

struct Batch {
  std::vector<Request> requests;
  std::size_t num_unfinished = 0;
  Priority priority = Priority::demand;
  std::exception_ptr error;
};

/// To be carried out as it stands, then reported to Schedule::finish. Buffer and length are of the file's direct
/// descriptor where they suit it.
struct Transfer {
  Request* request;
  int descriptor;
  std::byte* buffer;
  std::uint64_t offset;
  std::uint32_t num_bytes;
};

/// Threading: none of its own; the engine's lock guards it.
class Schedule {
 public:
  explicit Schedule(std::shared_ptr<FaultInjector> injector) : injector_(std::move(injector)) {}

  Ticket add(std::span<const Op> ops, Priority priority);
  /// The next transfer to carry out, demand first; none when nothing is queued. Injected faults that stand for a result
  /// are settled here and never reach the system.
  std::optional<Transfer> next();
  /// Takes a transfer's result: bytes moved, or minus the error number.
  void finish(Request& request, std::int64_t result);
  /// Requests of a ticket that have not ended. Throws std::invalid_argument for a ticket that is spent.
  [[nodiscard]] std::size_t num_unfinished(Ticket ticket) const;
  /// Forgets a finished ticket; its error, if it has one.
  [[nodiscard]] std::exception_ptr take(Ticket ticket);
  [[nodiscard]] std::size_t num_queued() const { return queued_[0].size() + queued_[1].size(); }
  /// Batches that ended so far: when it grew, somebody's wait may be over.
  [[nodiscard]] std::uint64_t num_ended_batches() const { return num_ended_batches_; }
  /// Forgets what is queued and not begun.
  void drop_queued();

 private:
  std::deque<Request*>& queue_of(const Request& request);
  void end(Request& request);
  void fail(Request& request, std::exception_ptr error);
  /// Settles the request if the injector says so, and shortens the transfer for a short one. Whether it was settled.
  bool inject(Transfer& transfer);

  std::shared_ptr<FaultInjector> injector_;
  std::unordered_map<Ticket, Batch> batches_;  // node-based: requests point to their batch
  std::deque<Request*> queued_[2];             // by Priority
  Ticket last_ticket_ = 0;
  std::uint64_t num_ended_batches_ = 0;
};

[[nodiscard]] std::unique_ptr<Engine> make_threads_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);
[[nodiscard]] std::unique_ptr<Engine> make_uring_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);

}  // namespace diskhop
