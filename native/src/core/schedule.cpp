#include "schedule.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>

namespace diskhop {
namespace {

/// The kernel moves less than 2 GiB at once; a round number below it keeps what follows aligned.
constexpr std::uint64_t max_transfer_bytes = std::uint64_t{1} << 30;

/// Bytes without which a request is not complete.
std::uint64_t required_bytes(const Op& op) {
  return op.kind == OperationKind::read ? std::min(op.required_bytes, op.num_bytes) : op.num_bytes;
}

std::string describe(const Op& op) {
  if (op.kind == OperationKind::fsync) return "fsync";
  return std::string(name_of(op.kind)) + " of " + std::to_string(op.num_bytes) + " bytes at offset " +
         std::to_string(op.offset);
}

std::exception_ptr io_error(const Request& request, int error_number, const std::string& detail) {
  const Op& op = request.op;
  return std::make_exception_ptr(IoError(op.kind, error_number, op.file->path(), op.offset + request.done_bytes,
                                         describe(op) + " failed" + detail));
}

}  // namespace

Ticket Schedule::add(std::span<const Op> ops, Priority priority) {
  for (const Op& op : ops) {
    if (op.kind == OperationKind::rename)
      throw std::invalid_argument("an engine reads, writes and fsyncs; it renames nothing");
    if (op.file == nullptr) throw std::invalid_argument("an op needs a file");
  }
  const Ticket ticket = ++last_ticket_;
  Batch& batch = batches_[ticket];
  batch.priority = priority;
  batch.requests.reserve(ops.size());
  std::deque<Request*>& queue = queued_[static_cast<std::size_t>(priority)];
  for (const Op& op : ops) {
    if (op.num_bytes == 0 && op.kind != OperationKind::fsync) continue;
    batch.requests.push_back({.op = op, .batch = &batch});
    queue.push_back(&batch.requests.back());
  }
  batch.num_unfinished = batch.requests.size();
  return ticket;
}

std::optional<Transfer> Schedule::next() {
  while (num_queued() > 0) {
    std::deque<Request*>& queue = queued_[0].empty() ? queued_[1] : queued_[0];
    Request& request = *queue.front();
    queue.pop_front();
    if (request.batch->error) {
      end(request);
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

bool Schedule::inject(Transfer& transfer) {
  Request& request = *transfer.request;
  const FaultInjector::Verdict verdict = injector_->next(request.op.kind, transfer.num_bytes);
  if (!verdict.faulty) return false;
  switch (verdict.kind) {
    case FaultKind::short_transfer: {
      // A disk stops between blocks: what is left then still suits the direct descriptor.
      const std::uint32_t alignment = request.op.file->offset_alignment();
      const auto short_bytes = static_cast<std::uint32_t>(verdict.num_bytes);
      transfer.num_bytes = short_bytes >= alignment ? short_bytes / alignment * alignment : short_bytes;
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
      fail(request, std::make_exception_ptr(
                        CrashError(request.op.file->path() + ": injected crash before " + describe(request.op))));
      return true;
  }
  return false;
}

void Schedule::finish(Request& request, std::int64_t result) {
  const Op& op = request.op;
  if (result < 0) {
    const int error_number = static_cast<int>(-result);
    if (error_number != EINTR && error_number != EAGAIN) return fail(request, io_error(request, error_number, ""));
    if (++request.tries < max_tries) return queue_of(request).push_front(&request);
    const std::string num_tries = std::to_string(max_tries);
    return fail(request, io_error(request, error_number, ", tried " + num_tries + " times"));
  }
  if (op.kind == OperationKind::fsync) return end(request);
  request.done_bytes += static_cast<std::uint64_t>(result);
  if (request.done_bytes >= required_bytes(op)) return end(request);
  if (result > 0) {
    request.tries = 0;
    return queue_of(request).push_front(&request);
  }
  const std::string place = std::to_string(op.offset + request.done_bytes);
  fail(request, op.kind == OperationKind::read ? io_error(request, 0, ": the file ends at byte " + place)
                                               : io_error(request, EIO, ": nothing was written at byte " + place));
}

std::size_t Schedule::num_unfinished(Ticket ticket) const {
  const auto found = batches_.find(ticket);
  if (found == batches_.end()) {
    throw std::invalid_argument("ticket " + std::to_string(ticket) +
                                " is unknown: it was waited for already, or never given");
  }
  return found->second.num_unfinished;
}

std::exception_ptr Schedule::take(Ticket ticket) {
  const auto batch = batches_.find(ticket);
  const std::exception_ptr error = std::move(batch->second.error);
  batches_.erase(batch);
  return error;
}

void Schedule::drop_queued() {
  for (std::deque<Request*>& queue : queued_) queue.clear();
}

std::deque<Request*>& Schedule::queue_of(const Request& request) {
  return queued_[static_cast<std::size_t>(request.batch->priority)];
}

void Schedule::end(Request& request) {
  if (--request.batch->num_unfinished == 0) ++num_ended_batches_;
}

void Schedule::fail(Request& request, std::exception_ptr error) {
  if (!request.batch->error) request.batch->error = std::move(error);
  end(request);
}

}  // namespace diskhop
