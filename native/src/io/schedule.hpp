// What both engines share: which transfer comes next, and what its result means. No system calls, no waiting.
//
// A *batch* is the ops of one ticket, a *request* one of its ops, a *transfer* one system-level operation of a request:
// short ones resume as another transfer, interrupted ones are tried again.
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
  std::uint64_t done_bytes = 0;     // where the next transfer begins
  std::uint64_t reached_bytes = 0;  // how far transfers came; past done_bytes where a direct one ended inside a block
  unsigned tries = 0;               // since the last byte of progress
  Request* next = nullptr;          // in its queue
};

/// First in, first out, through the requests themselves: adding to it needs no memory and cannot fail.
class RequestQueue {
 public:
  void push_back(Request& request) noexcept;
  void push_front(Request& request) noexcept;
  /// None when it is empty.
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

/// To be carried out as it stands, then reported to Schedule::finish. Buffer and length are of the file's direct
/// descriptor where they suit it.
struct Transfer {
  Request* request;
  int descriptor;
  std::byte* buffer;
  std::uint64_t offset;
  std::uint32_t num_bytes;
};

/// Only add() throws what an engine's caller did not bring upon himself: what fails afterwards, even for want of
/// memory, is the error of a ticket. Threading: none of its own; the engine's lock guards it.
class Schedule {
 public:
  explicit Schedule(std::shared_ptr<FaultInjector> injector) : injector_(std::move(injector)) {}

  /// Queues all ops, or throws and leaves everything as it was.
  Ticket add(std::span<const Op> ops, Priority priority);
  /// The next transfer to carry out, demand first; none when nothing is queued. Injected faults that stand for a result
  /// are settled here and never reach the system.
  std::optional<Transfer> next() noexcept;
  /// Takes a transfer's result: bytes moved, or minus the error number.
  void finish(Request& request, std::int64_t result) noexcept;
  /// For an engine that can carry nothing more out: fails what is queued, and all that will be.
  void stop(int error_number) noexcept;
  /// Requests of a ticket that have not ended. Throws std::invalid_argument for a ticket that is spent.
  [[nodiscard]] std::size_t num_unfinished(Ticket ticket) const;
  /// Forgets a finished ticket; its error, if it has one.
  [[nodiscard]] std::exception_ptr take(Ticket ticket) noexcept;
  [[nodiscard]] std::size_t num_queued() const noexcept { return queued_[0].size() + queued_[1].size(); }
  /// Batches that ended so far: when it grew, somebody's wait may be over.
  [[nodiscard]] std::uint64_t num_ended_batches() const noexcept { return num_ended_batches_; }
  /// Forgets what is queued and not begun.
  void drop_queued() noexcept;

 private:
  RequestQueue& queue_of(const Request& request) noexcept;
  void retry(Request& request, int error_number) noexcept;
  void end(Request& request) noexcept;
  void fail(Request& request, std::exception_ptr error) noexcept;
  /// Settles the request if the injector says so, and shortens the transfer for a short one. Whether it was settled.
  bool inject(Transfer& transfer) noexcept;

  std::shared_ptr<FaultInjector> injector_;
  std::unordered_map<Ticket, Batch> batches_;  // node-based: requests point to their batch
  RequestQueue queued_[2];                     // by Priority
  Ticket last_ticket_ = 0;
  std::uint64_t num_ended_batches_ = 0;
  int stopped_by_ = 0;  // the error number
};

[[nodiscard]] std::unique_ptr<Engine> make_threads_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);
[[nodiscard]] std::unique_ptr<Engine> make_uring_engine(unsigned depth, std::shared_ptr<FaultInjector> injector);

}  // namespace diskhop
