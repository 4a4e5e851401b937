#include "io/schedule.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace diskhop {
namespace {

/// The kernel transfers less than 2 GiB at once; a round number below it keeps the rest aligned.
constexpr std::uint64_t max_transfer_bytes = std::uint64_t{1} << 30;
constexpr std::uint64_t max_file_bytes = std::numeric_limits<std::int64_t>::max();

/// Bytes that must be transferred for a request to be complete.
std::uint64_t required_bytes(const Op& op) {
  return op.kind == OperationKind::read ? std::min(op.required_bytes, op.num_bytes) : op.num_bytes;
}

std::string describe(const Op& op) {
  if (op.kind == OperationKind::fsync) return "fsync";
  return std::string(name_of(op.kind)) + " of " + std::to_string(op.num_bytes) + " bytes at offset " +
         std::to_string(op.offset);
}

template <typename MakeError>
std::exception_ptr error_of(MakeError make_error) noexcept {
  try {
    return std::make_exception_ptr(make_error());
  } catch (...) {  // no memory for the error: that is then the error
    return std::current_exception();
  }
}

std::exception_ptr io_error(const Request& request, int error_number, const char* detail = "") noexcept {
  return error_of([&] {
    const Op& op = request.op;
    const std::string tried = request.tries < max_tries ? "" : ", tried " + std::to_string(request.tries) + " times";
    return IoError(op.kind, error_number, op.file->path(), op.offset + request.done_bytes,
                   describe(op) + " failed" + tried + detail);
  });
}

/// Error of an op beyond the file's end, or beyond what the file accepts: names the offset where its bytes end.
std::exception_ptr end_error(const Request& request) noexcept {
  return error_of([&] {
    const Op& op = request.op;
    const bool reads = op.kind == OperationKind::read;
    const std::uint64_t place = op.offset + request.reached_bytes;
    return IoError(op.kind, reads ? 0 : EIO, op.file->path(), place,
                   describe(op) + " failed: " + (reads ? "the file ends" : "nothing was written") + " at byte " +
                       std::to_string(place));
  });
}

/// Errors that a retry may cure. The last two come from io_uring for a request after its submitting thread has exited:
/// the kernel finishes work in that thread's context.
bool is_transient(int error_number) noexcept {
  return error_number == EINTR || error_number == EAGAIN || error_number == ECANCELED || error_number == EFAULT;
}

/// Granularity in bytes at which transfers of an op resume: a direct op stays direct, because a buffered rest would
/// share a page with it.
std::uint64_t resume_alignment(const Op& op) noexcept {
  const File& file = *op.file;
  if (!file.goes_direct(op.offset, op.num_bytes, op.buffer)) return 1;
  return std::max(file.offset_alignment(), file.memory_alignment());
}

void check(const Op& op) {
  if (op.kind == OperationKind::rename)
    throw std::invalid_argument("an engine reads, writes and fsyncs; it renames nothing");
  if (op.file == nullptr) throw std::invalid_argument("an op needs a file");
  if (op.kind == OperationKind::fsync) return;
  // The system's offsets are signed, and io_uring reads the highest unsigned one as "where the last one ended".
  if (op.num_bytes > max_file_bytes || op.offset > max_file_bytes - op.num_bytes) {
    throw std::invalid_argument(op.file->path() + ": " + describe(op) + " ends past 2^63 - 1, where every file ends");
  }
  if (op.kind == OperationKind::read && op.num_bytes > 0 && op.required_bytes == 0) {
    throw std::invalid_argument(op.file->path() + ": " + describe(op) + " must require at least one of them");
  }
}

}  // namespace

void RequestQueue::push_back(Request& request) noexcept {
  request.next = nullptr;
  (last_ == nullptr ? first_ : last_->next) = &request;
  last_ = &request;
  ++num_requests_;
}

void RequestQueue::push_front(Request& request) noexcept {
  request.next = first_;
  first_ = &request;
  if (last_ == nullptr) last_ = &request;
  ++num_requests_;
}

Request* RequestQueue::pop_front() noexcept {
  if (first_ == nullptr) return nullptr;
  Request* const request = first_;
  first_ = request->next;
  if (first_ == nullptr) last_ = nullptr;
  --num_requests_;
  return request;
}

Ticket Schedule::add(std::span<const Op> ops, Priority priority) {
  std::vector<Request> requests;
  requests.reserve(ops.size());
  for (const Op& op : ops) {
    check(op);
    if (op.num_bytes > 0 || op.kind == OperationKind::fsync) requests.push_back({.op = op});
  }
  Batch& batch = batches_[last_ticket_ + 1];
  // Nothing throws from here on.
  batch.requests = std::move(requests);
  batch.num_unfinished = batch.requests.size();
  batch.priority = priority;
  for (Request& request : batch.requests) {
    request.batch = &batch;
    queue_of(request).push_back(request);
  }
  return ++last_ticket_;
}

std::optional<Transfer> Schedule::next() noexcept {
  while (num_queued() > 0) {
    Request& request = *(queued_[0].size() > 0 ? queued_[0] : queued_[1]).pop_front();
    if (request.batch->error) {
      end(request);
      continue;
    }
    if (stopped_by_ != 0) {
      fail(request,
           io_error(request, stopped_by_, ": the kernel takes no more requests (engine 'threads' needs less)"));
      continue;
    }
    const Op& op = request.op;
    Transfer transfer = {&request, 0, op.buffer + request.done_bytes, op.offset + request.done_bytes, 0};
    transfer.num_bytes = static_cast<std::uint32_t>(std::min(op.num_bytes - request.done_bytes, max_transfer_bytes));
    if (injector_ && inject(transfer)) continue;
    transfer.descriptor = op.file->descriptor_for(transfer.offset, transfer.num_bytes, transfer.buffer);
    return transfer;
  }
  return std::nullopt;
}

bool Schedule::inject(Transfer& transfer) noexcept {
  Request& request = *transfer.request;
  const FaultInjector::Verdict verdict = injector_->next(request.op.kind, transfer.num_bytes);
  if (!verdict.faulty) return false;
  switch (verdict.kind) {
    case FaultKind::short_transfer: {
      // A disk stops between blocks: the rest then still suits the direct descriptor.
      const std::uint64_t block_bytes = resume_alignment(request.op);
      const std::uint64_t short_bytes = std::max(verdict.num_bytes / block_bytes * block_bytes, block_bytes);
      transfer.num_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(short_bytes, transfer.num_bytes));
      return false;
    }
    case FaultKind::interrupted:
      finish(request, -EINTR);
      return true;
    case FaultKind::again:
      finish(request, -EAGAIN);
      return true;
    case FaultKind::io_error:
      finish(request, -EIO);
      return true;
    case FaultKind::no_space:
      finish(request, -ENOSPC);
      return true;
    case FaultKind::truncated:
      finish(request, 0);
      return true;
    case FaultKind::crash:
      fail(request, error_of([&] {
             return CrashError(request.op.file->path() + ": injected crash before " + describe(request.op));
           }));
      return true;
  }
  return false;
}

void Schedule::finish(Request& request, std::int64_t result) noexcept {
  const Op& op = request.op;
  if (result < 0) {
    const int error_number = static_cast<int>(-result);
    return is_transient(error_number) ? retry(request, error_number) : fail(request, io_error(request, error_number));
  }
  if (op.kind == OperationKind::fsync) return end(request);
  const std::uint64_t reached_bytes = request.done_bytes + static_cast<std::uint64_t>(result);
  if (reached_bytes >= required_bytes(op)) return end(request);
  // A direct transfer that ends inside a block is repeated from the block's start. One that ends at the same place
  // again has reached the end of the file.
  if (result == 0 || reached_bytes == request.reached_bytes) return fail(request, end_error(request));
  request.done_bytes = reached_bytes - reached_bytes % resume_alignment(op);
  if (reached_bytes < request.reached_bytes) return retry(request, EAGAIN);
  request.reached_bytes = reached_bytes;
  request.tries = 0;
  queue_of(request).push_front(request);
}

void Schedule::retry(Request& request, int error_number) noexcept {
  if (++request.tries < max_tries) return queue_of(request).push_front(request);
  fail(request, io_error(request, error_number));
}

void Schedule::stop(int error_number) noexcept {
  stopped_by_ = error_number;
  static_cast<void>(next());  // fails all queued requests
}

std::size_t Schedule::num_unfinished(Ticket ticket) const {
  const auto found = batches_.find(ticket);
  if (found == batches_.end()) {
    throw std::invalid_argument("ticket " + std::to_string(ticket) +
                                " is unknown: it was waited for already, or never given");
  }
  return found->second.num_unfinished;
}

std::exception_ptr Schedule::take(Ticket ticket) noexcept {
  const auto batch = batches_.find(ticket);
  std::exception_ptr error = std::move(batch->second.error);
  batches_.erase(batch);
  return error;
}

void Schedule::drop_queued() noexcept {
  for (RequestQueue& queue : queued_) queue = {};
}

RequestQueue& Schedule::queue_of(const Request& request) noexcept {
  return queued_[static_cast<std::size_t>(request.batch->priority)];
}

void Schedule::end(Request& request) noexcept {
  if (--request.batch->num_unfinished == 0) ++num_ended_batches_;
}

void Schedule::fail(Request& request, std::exception_ptr error) noexcept {
  if (!request.batch->error) request.batch->error = std::move(error);
  end(request);
}

}  // namespace diskhop
