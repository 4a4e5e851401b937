// Moves bytes between files and memory, many requests at a time.
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
/// may reach past the end of the file); less is an error: the file is truncated. An fsync covers the whole file, and
/// what was complete when it was submitted.
///
/// On a file with direct I/O what is not aligned goes through the page cache. The two do not know of each other: while
/// one of them is in flight, no write of the other kind may touch the same page (nor block, where those are larger), or
/// a later fsync fails for want of a page that could be dropped. So an odd tail is written after the aligned part is
/// complete, and begins at a page.
struct Op {
  OperationKind kind = OperationKind::read;
  const File* file = nullptr;
  std::uint64_t offset = 0;
  std::byte* buffer = nullptr;
  std::uint64_t num_bytes = 0;
  std::uint64_t required_bytes =
      std::numeric_limits<std::uint64_t>::max();  // at least 1; at or above num_bytes: all of them
};

using Ticket = std::uint64_t;

/// Short transfers resume where they stopped, direct ones at the last block's start, so that they stay direct.
/// Interrupted and refused ones (EINTR, EAGAIN, and what io_uring says when the thread that submitted has exited:
/// ECANCELED, EFAULT) are retried up to `max_tries` times in a row without a byte of progress, then they are errors as
/// any other. Threading: any number of callers; a ticket belongs to its caller, and any thread may wait for it.
/// Destroying an engine drops what is queued and waits for what is in flight.
class Engine {
 public:
  virtual ~Engine() = default;
  /// Queues reads, writes or fsyncs; never waits for the device. Buffers and files stay the caller's and must live
  /// until wait() returns. Ops of one ticket have no order among each other. Throws with nothing queued:
  /// std::invalid_argument for an op that breaks a rule, std::system_error where no thread can be started. Whatever
  /// fails later is told by wait().
  [[nodiscard]] virtual Ticket submit(std::span<const Op> ops, Priority priority) = 0;
  /// Returns once every op is complete. Throws IoError naming file and offset of the first that failed, CrashError for
  /// an injected crash, and only after none of the ticket's ops is still in flight; those not yet begun are then
  /// dropped. The ticket is spent either way; std::invalid_argument for one that is spent or was never given.
  virtual void wait(Ticket ticket) = 0;
  /// Whether wait() would return at once. May lag behind the device while another thread waits.
  [[nodiscard]] virtual bool poll(Ticket ticket) = 0;
  /// "uring" or "threads".
  [[nodiscard]] virtual std::string name() const = 0;
  /// Requests kept at the device at once; more wait in the engine, demand before prefetch.
  [[nodiscard]] virtual unsigned depth() const = 0;
};

inline constexpr unsigned max_tries = 1000;
inline constexpr unsigned max_depth = 4096;
/// The threads engine keeps one thread a request: more than this costs more than it brings.
inline constexpr unsigned max_threads = 64;

/// Why io_uring cannot be used here, tried with a request that does nothing ("built without liburing", "the kernel
/// forbids it"), or empty when it can.
[[nodiscard]] std::string why_no_uring();

/// `name` is "uring" or "threads". The injector may be null. Throws std::invalid_argument for an unknown name or
/// a depth outside 1 .. max_depth, std::system_error where io_uring cannot be used.
[[nodiscard]] std::unique_ptr<Engine> make_engine(const std::string& name, unsigned depth,
                                                  std::shared_ptr<FaultInjector> injector);

}  // namespace diskhop
