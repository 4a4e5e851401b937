// Scheduling shared by both engines: which transfer comes next, and what its result means. No system calls, no waiting.
//
// A *batch* is the ops of one ticket, a *request* one of its ops, a *transfer* one system call of a request: short ones
// resume as another transfer, interrupted ones are retried.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "diskhop/io/engine.hpp"

namespace diskhop {

struct Batch;

struct Request {
  Op op;
  Batch* batch = nullptr;
  std::uint64_t done_bytes = 0;  // where the next transfer begins
  std::uint64_t reached_bytes =
      0;                    // end of the bytes transferred; beyond done_bytes if a direct transfer ended inside a block
  unsigned tries = 0;       // since the last byte of progress
  Request* next = nullptr;  // in its queue
};

/// Queue, first in, first out, linked through the requests: adding needs no memory and cannot fail.
class RequestQueue {
 public:
  void push_back(Request& request) noexcept;
  void push_front(Request& request) noexcept;
  /// Returns null if the queue is empty.
  [[nodiscard]] Request* pop_front() noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return num_requests_; }

 private:
  Request* first_ = nullptr;
  Request* last_ = nullptr;
  std::size_t num_requests_ = 0;
};

struct Batch {
  std::vector<Request> requests;
  std::size_t num_unfinished = 0;
  Priority priority = Priority::demand;
  std::exception_ptr error;
};

/// A transfer to execute as it is and report to Schedule::finish(). Uses the file's direct descriptor if buffer and
/// length are aligned.
struct Transfer {
  Request* request;
  int descriptor;
  std::byte* buffer;
  std::uint64_t offset;
  std::uint32_t num_bytes;
};

/// Queue and state of all requests. Only add() throws errors that the engine's caller did not cause; later failures,
/// even for lack of memory, become the ticket's error. Threading: guarded by the engine's lock.
class Schedule {
 public:
  explicit Schedule(std::shared_ptr<FaultInjector> injector) : injector_(std::move(injector)) {}

  /// Queues all ops, or throws and changes nothing.
  Ticket add(std::span<const Op> ops, Priority priority);
  /// Returns the next transfer to execute, demand first; none if nothing is queued. Injected faults that replace a
  /// result are handled here and never reach the system.
  std::optional<Transfer> next() noexcept;
  /// Processes a transfer's result: bytes transferred, or minus the error number.
  void finish(Request& request, std::int64_t result) noexcept;
  /// Fails all queued requests, and all later ones. For an engine that cannot execute any more.
  void stop(int error_number) noexcept;
  /// Number of a ticket's requests that have not ended. Throws std::invalid_argument for a spent ticket.
  [[nodiscard]] std::size_t num_unfinished(Ticket ticket) const;
  /// Removes a finished ticket and returns its error, or null.
  [[nodiscard]] std::exception_ptr take(Ticket ticket) noexcept;
  [[nodiscard]] std::size_t num_queued() const noexcept { return queued_[0].size() + queued_[1].size(); }
  /// Number of batches that ended so far: after an increase a waiting thread may return.
  [[nodiscard]] std::uint64_t num_ended_batches() const noexcept { return num_ended_batches_; }
  /// Drops queued requests that have not begun.
  void drop_queued() noexcept;

 private:
  RequestQueue& queue_of(const Request& request) noexcept;
  void retry(Request& request, int error_number) noexcept;
  void end(Request& request) noexcept;
  void fail(Request& request, std::exception_ptr error) noexcept;
  /// Ends the request if the injector says so, and shortens a short transfer. Returns whether the request ended.
  bool inject(Transfer& transfer) noexcept;

  std::shared_ptr<FaultInjector> injector_;
  std::unordered_map<Ticket, Batch> batches_;  // node-based: requests point to their batch
  RequestQueue queued_[2];                     // by Priority
  Ticket last_ticket_ = 0;
  std::uint64_t num_ended_batches_ = 0;
  int stopped_by_ = 0;  // error number, or 0
};

[[nodiscard]] std::unique_ptr<Engine> make_threads_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);
[[nodiscard]] std::unique_ptr<Engine> make_uring_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);

}  // namespace diskhop
