// Asynchronous transfers between files and memory, many requests at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "diskhop/io/faults.hpp"
#include "diskhop/io/file.hpp"

namespace diskhop {

enum class Priority { demand, prefetch };

/// One transfer. A read asks for `num_bytes` and is complete once `required_bytes` of them are there (an aligned read
/// may reach past the end of the file); fewer is an error: the file is truncated. An fsync covers the whole file and
/// every transfer that was complete when it was submitted.
///
/// On a file with direct I/O, unaligned transfers go through the page cache, and the two do not see each other. While
/// one is in flight, no write of the other kind may touch the same page (or larger block): a later fsync would fail
/// because it cannot drop the page. So an unaligned tail is written after the aligned part is complete, and begins at a
/// page.
struct Op {
  OperationKind kind = OperationKind::read;
  const File* file = nullptr;
  std::uint64_t offset = 0;
  std::byte* buffer = nullptr;
  std::uint64_t num_bytes = 0;
  std::uint64_t required_bytes =
      std::numeric_limits<std::uint64_t>::max();  // at least 1; num_bytes or more: all of them
};

using Ticket = std::uint64_t;

/// Runs transfers. Short ones resume where they stopped, direct ones at the last block's start, so that they stay
/// direct. Interrupted and refused ones (EINTR, EAGAIN, and ECANCELED or EFAULT from io_uring when the submitting
/// thread has exited) are retried up to max_tries times without progress, then they fail. Threading: any number of
/// callers; any thread may wait for a ticket. Lifetime: the destructor drops queued ops and waits for those in flight.
/// In a forked child every call that transfers throws ForkedError, and the destructor does nothing.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Queues reads, writes or fsyncs; never waits for the device. Buffers and files stay the caller's and must live
  /// until wait() returns. Ops of one ticket run in any order. Throws with nothing queued: std::invalid_argument for an
  /// op that breaks a rule, std::system_error if no thread can be started. Later failures are reported by wait().
  [[nodiscard]] virtual Ticket submit(std::span<const Op> ops, Priority priority) = 0;
  /// Returns once every op is complete. Throws IoError naming file and offset of the first that failed, or CrashError
  /// for an injected crash, but only after none of the ticket's ops is in flight; ops that have not begun are dropped.
  /// The ticket is spent in any case. Throws std::invalid_argument for a ticket that is spent or unknown.
  virtual void wait(Ticket ticket) = 0;
  /// Whether wait() would return at once. May lag behind the device while another thread waits.
  [[nodiscard]] virtual bool poll(Ticket ticket) = 0;
  /// "uring" or "threads".
  [[nodiscard]] virtual std::string name() const = 0;
  /// Requests in flight at the device at once; more wait in the engine, demand before prefetch.
  [[nodiscard]] virtual unsigned depth() const = 0;
};

inline constexpr unsigned max_tries = 1000;
inline constexpr unsigned max_depth = 4096;
/// The threads engine uses one thread per request: more than this costs more than it gains.
inline constexpr unsigned max_threads = 64;

/// Why io_uring cannot be used here ("built without liburing", "the kernel forbids it"), found by a request that does
/// nothing. Empty if it can.
[[nodiscard]] std::string why_no_uring();

/// name: "uring" or "threads". The injector may be null. Throws std::invalid_argument for an unknown name or a depth
/// outside 1 .. max_depth, std::system_error if io_uring cannot be used.
[[nodiscard]] std::unique_ptr<Engine> make_engine(const std::string& name, unsigned depth,
                                                  std::shared_ptr<FaultInjector> injector);

}  // namespace diskhop
