// Engine for machines that forbid io_uring: a pool of threads in blocking system calls.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/signals_blocked.hpp"
#include "io/schedule.hpp"

namespace diskhop {
namespace {

std::int64_t carry_out(const Transfer& transfer) {
  const auto offset = static_cast<off_t>(transfer.offset);
  ssize_t result = 0;
  switch (transfer.request->op.kind) {
    case OperationKind::read:
      result = ::pread(transfer.descriptor, transfer.buffer, transfer.num_bytes, offset);
      break;
    case OperationKind::write:
      result = ::pwrite(transfer.descriptor, transfer.buffer, transfer.num_bytes, offset);
      break;
    case OperationKind::fsync:
    case OperationKind::rename:
      result = ::fsync(transfer.descriptor);
      break;
  }
  return result < 0 ? -errno : result;
}

class ThreadsEngine final : public Engine {
 public:
  ThreadsEngine(unsigned depth, std::shared_ptr<FaultInjector> injector)
      : depth_(std::min(depth, max_threads)), schedule_(std::move(injector)) {}

  ~ThreadsEngine() override {
    {
      const std::lock_guard lock(mutex_);
      schedule_.drop_queued();
      is_closing_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  ThreadsEngine(const ThreadsEngine&) = delete;
  ThreadsEngine& operator=(const ThreadsEngine&) = delete;
  ThreadsEngine(ThreadsEngine&&) = delete;
  ThreadsEngine& operator=(ThreadsEngine&&) = delete;

  Ticket submit(std::span<const Op> ops, Priority priority) override {
    const std::lock_guard lock(mutex_);
    start_workers(num_busy_ + schedule_.num_queued() + ops.size());
    const Ticket ticket = schedule_.add(ops, priority);
    for (std::size_t i = std::min(ops.size(), workers_.size() - num_busy_); i > 0; --i) work_.notify_one();
    return ticket;
  }

  void wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return schedule_.num_unfinished(ticket) == 0; });
    const std::exception_ptr error = schedule_.take(ticket);
    lock.unlock();
    if (error) std::rethrow_exception(error);
  }

  bool poll(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    return schedule_.num_unfinished(ticket) == 0;
  }

  std::string name() const override { return "threads"; }
  unsigned depth() const override { return depth_; }

 private:
  /// Starts workers up to one per transfer. If the system refuses more threads, the running ones do the work.
  void start_workers(std::size_t num_transfers) {
    const std::size_t num_workers = std::min<std::size_t>(depth_, num_transfers);
    if (workers_.size() >= num_workers) return;
    const SignalsBlocked blocked;
    workers_.reserve(num_workers);
    while (workers_.size() < num_workers) {
      try {
        workers_.emplace_back([this] { work(); });
      } catch (const std::system_error& error) {
        if (!workers_.empty()) return;
        throw std::system_error(error.code(), "engine 'threads' cannot start a thread");
      }
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (!is_closing_) {
      const std::uint64_t num_ended = schedule_.num_ended_batches();
      if (const auto transfer = schedule_.next()) {
        ++num_busy_;
        lock.unlock();
        const std::int64_t result = carry_out(*transfer);
        lock.lock();
        --num_busy_;
        schedule_.finish(*transfer->request, result);
      } else if (num_ended == schedule_.num_ended_batches()) {
        work_.wait(lock);
      }
      // next() can end batches too: those whose last request failed by a fault or an earlier error.
      if (num_ended != schedule_.num_ended_batches()) ended_.notify_all();
    }
  }

  const unsigned depth_;
  std::mutex mutex_;
  std::condition_variable work_;   // an op was queued, or the engine closes
  std::condition_variable ended_;  // a batch ended
  Schedule schedule_;
  std::vector<std::thread> workers_;
  std::size_t num_busy_ = 0;  // workers in a system call
  bool is_closing_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_threads_engine(unsigned depth, std::shared_ptr<FaultInjector> injector) {
  return std::make_unique<ThreadsEngine>(depth, std::move(injector));
}

}  // namespace diskhop
