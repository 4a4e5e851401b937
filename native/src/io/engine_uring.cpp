// Engine over io_uring: one ring for all callers, and no thread of its own.
//
// The first thread that waits becomes the *reaper*: it sleeps in the kernel for completions of all tickets and refills
// the ring from the queue. The others sleep on a condition variable until a ticket has ended or the reaper leaves.
#include "io/schedule.hpp"

#ifdef DISKHOP_WITH_URING

#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace diskhop {
namespace {

constexpr std::chrono::milliseconds one_millisecond{1};

/// Owns a ring. error_number is 0 if it could be set up, the kernel supports the needed operations, and a first request
/// completed: a sandbox may allow only the setup.
class Ring {
 public:
  explicit Ring(unsigned num_entries) {
    // Neither COOP_TASKRUN nor SINGLE_ISSUER: a thread that submitted may compute for long without entering the kernel,
    // and its completions must reach the reaper.
    error_number_ = -io_uring_queue_init(num_entries, &ring_, 0);
    if (error_number_ != 0) return;
    error_number_ = knows_reads() ? try_out() : ENOSYS;
    if (error_number_ != 0) io_uring_queue_exit(&ring_);
  }
  ~Ring() {
    if (error_number_ == 0) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  Ring(Ring&&) = delete;
  Ring& operator=(Ring&&) = delete;

  [[nodiscard]] int error_number() const { return error_number_; }
  [[nodiscard]] io_uring* get() { return &ring_; }

 private:
  bool knows_reads() {
    const std::unique_ptr<io_uring_probe, decltype(&io_uring_free_probe)> probe(io_uring_get_probe_ring(&ring_),
                                                                                &io_uring_free_probe);
    return probe && io_uring_opcode_supported(probe.get(), IORING_OP_READ) != 0;
  }

  /// Runs a request that does nothing. Returns 0 or the error number of the failed step.
  int try_out() {
    io_uring_prep_nop(io_uring_get_sqe(&ring_));
    int result = 0;
    do {
      result = io_uring_submit(&ring_);
    } while (result == -EINTR);
    if (result <= 0) return result == 0 ? EAGAIN : -result;
    io_uring_cqe* completion = nullptr;
    do {
      result = io_uring_wait_cqe(&ring_, &completion);
    } while (result == -EINTR);
    if (result != 0) return -result;
    const int outcome = -completion->res;
    io_uring_cqe_seen(&ring_, completion);
    return outcome;
  }

  io_uring ring_ = {};
  int error_number_ = 0;
};

class UringEngine final : public Engine {
 public:
  UringEngine(unsigned depth, std::shared_ptr<FaultInjector> injector)
      : depth_(depth), ring_(depth), schedule_(std::move(injector)) {
    if (ring_.error_number() != 0) {
      throw std::system_error(ring_.error_number(), std::generic_category(), "io_uring cannot be set up");
    }
  }

  ~UringEngine() override {
    schedule_.drop_queued();
    while (num_at_kernel() > 0) {
      sleep_for_completion();
      io_uring_cqe* completion = nullptr;
      if (io_uring_peek_cqe(ring_.get(), &completion) != 0) continue;
      io_uring_cqe_seen(ring_.get(), completion);
      --num_in_flight_;
    }
  }

  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;
  UringEngine(UringEngine&&) = delete;
  UringEngine& operator=(UringEngine&&) = delete;

  Ticket submit(std::span<const Op> ops, Priority priority) override {
    const std::lock_guard lock(mutex_);
    const std::uint64_t num_ended = schedule_.num_ended_batches();
    const Ticket ticket = schedule_.add(ops, priority);
    // Nothing throws from here on: the kernel may already use the caller's memory.
    feed();
    // Feeding can end other tickets: those whose last request failed by a fault or an earlier error.
    if (num_ended != schedule_.num_ended_batches()) changed_.notify_all();
    return ticket;
  }

  void wait(Ticket ticket) override {
    std::unique_lock lock(mutex_);
    while (schedule_.num_unfinished(ticket) > 0) {
      if (is_reaping_) {
        ++num_sleeping_;
        changed_.wait(lock);
        --num_sleeping_;
      } else {
        is_reaping_ = true;
        lock.unlock();
        const int error_number = sleep_for_completion();
        lock.lock();
        is_reaping_ = false;
        if (error_number != 0) stop(error_number);
        reap();
        // Another ticket may have ended; and if this one has, another thread must reap.
        if (num_sleeping_ > 0) changed_.notify_all();
      }
    }
    const std::exception_ptr error = schedule_.take(ticket);
    lock.unlock();
    if (error) std::rethrow_exception(error);
  }

  bool poll(Ticket ticket) override {
    const std::lock_guard lock(mutex_);
    if (schedule_.num_unfinished(ticket) > 0 && !is_reaping_) {
      reap();
      if (num_sleeping_ > 0) changed_.notify_all();
    }
    return schedule_.num_unfinished(ticket) == 0;
  }

  std::string name() const override { return "uring"; }
  unsigned depth() const override { return depth_; }

 private:
  /// Requests in flight that the kernel has taken.
  unsigned num_at_kernel() { return num_in_flight_ - io_uring_sq_ready(ring_.get()); }

  /// Fills the ring up to the depth and submits it to the kernel in small batches. A batch reaches the device only once
  /// it is complete, so large ones are used only while the device has enough work.
  void feed() noexcept {
    while (num_in_flight_ < depth_) {
      const auto transfer = schedule_.next();
      if (!transfer) break;
      io_uring_sqe* const entry = io_uring_get_sqe(ring_.get());  // never null: the ring has at least `depth` entries
      switch (transfer->request->op.kind) {
        case OperationKind::read:
          io_uring_prep_read(entry, transfer->descriptor, transfer->buffer, transfer->num_bytes, transfer->offset);
          break;
        case OperationKind::write:
          io_uring_prep_write(entry, transfer->descriptor, transfer->buffer, transfer->num_bytes, transfer->offset);
          break;
        case OperationKind::fsync:
        case OperationKind::rename:
          io_uring_prep_fsync(entry, transfer->descriptor, 0);
          break;
      }
      io_uring_sqe_set_data(entry, transfer->request);
      ++num_in_flight_;
      if (io_uring_sq_ready(ring_.get()) >= num_at_kernel() / 16) hand_over();
    }
    hand_over();
  }

  /// Submits the entries of the ring to the kernel.
  void hand_over() noexcept {
    unsigned tries = 0;
    while (io_uring_sq_ready(ring_.get()) > 0) {
      const int result = io_uring_submit(ring_.get());
      if (result > 0 || result == -EINTR) continue;
      if (result != 0 && result != -EAGAIN && result != -EBUSY) return stop(-result);
      // The kernel is short of memory: completions free some, and the reaper returns here.
      if (num_at_kernel() > 0) return;
      if (++tries == max_tries) return stop(EAGAIN);
      std::this_thread::sleep_for(one_millisecond);
    }
  }

  /// Stops submitting after an error: requests not taken by the kernel fail, now and later; those taken still complete.
  void stop(int error_number) noexcept {
    io_uring_sq& entries = ring_.get()->sq;
    for (unsigned num_left = io_uring_sq_ready(ring_.get()); num_left > 0; --num_left) {
      // Taken back: the kernel reads the ring's end only when it is entered with new entries. Queued again, to fail
      // below.
      const io_uring_sqe& entry = entries.sqes[--entries.sqe_tail & *entries.kring_mask];
      schedule_.finish(*reinterpret_cast<Request*>(entry.user_data), -EAGAIN);
      --num_in_flight_;
    }
    schedule_.stop(error_number);
  }

  /// Sleeps until there is a completion, without the lock. Waiting for several at once would wake less often, but
  /// devices complete in bursts, and the reaper refills the ring before a burst has emptied it. Something is in flight:
  /// an unfinished ticket's requests are queued only while the ring is full.
  /// Returns the error number if the kernel does not allow sleeping: completions still arrive then, and are polled.
  int sleep_for_completion() noexcept {
    io_uring_cqe* completion = nullptr;
    int result = 0;
    do {
      result = io_uring_wait_cqe(ring_.get(), &completion);
    } while (result == -EINTR || result == -EAGAIN);
    if (result != 0) std::this_thread::sleep_for(one_millisecond);
    return -result;
  }

  /// Takes the available completions and refills the ring. Only while no thread sleeps for completions: it would never
  /// wake up if another thread took the last one.
  void reap() noexcept {
    io_uring_cqe* completion = nullptr;
    unsigned head = 0;
    unsigned num_completions = 0;
    io_uring_for_each_cqe(ring_.get(), head, completion) {
      schedule_.finish(*static_cast<Request*>(io_uring_cqe_get_data(completion)), completion->res);
      ++num_completions;
    }
    io_uring_cq_advance(ring_.get(), num_completions);
    num_in_flight_ -= num_completions;
    feed();
  }

  const unsigned depth_;
  std::mutex mutex_;
  std::condition_variable changed_;  // a ticket ended, or there is no reaper
  Ring ring_;
  Schedule schedule_;
  unsigned num_in_flight_ = 0;  // in the ring or in the kernel
  unsigned num_sleeping_ = 0;   // in wait(), while another thread reaps
  bool is_reaping_ = false;
};

}  // namespace

std::string why_no_uring() {
  const Ring ring(4);
  switch (ring.error_number()) {
    case 0:
      return "";
    case ENOSYS:
      return "the kernel does not know it";
    case EPERM:
    case EACCES:
      return "the kernel forbids it (seccomp or kernel.io_uring_disabled)";
    default:
      return std::generic_category().message(ring.error_number());
  }
}

std::unique_ptr<Engine> make_uring_engine(unsigned depth, std::shared_ptr<FaultInjector> injector) {
  return std::make_unique<UringEngine>(depth, std::move(injector));
}

}  // namespace diskhop

#else

#include <cerrno>
#include <system_error>

namespace diskhop {

std::string why_no_uring() { return "built without liburing"; }

std::unique_ptr<Engine> make_uring_engine(unsigned /*depth*/, std::shared_ptr<FaultInjector> /*injector*/) {
  throw std::system_error(ENOSYS, std::generic_category(), "built without liburing");
}

}  // namespace diskhop

#endif
