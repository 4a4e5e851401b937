// Injected faults: failures of a disk, the kernel or the process at the n-th operation.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "diskhop/io/file.hpp"

namespace diskhop {

enum class FaultKind {
  short_transfer,  // fewer bytes than requested, at least one
  interrupted,     // EINTR
  again,           // EAGAIN
  io_error,        // EIO
  no_space,        // ENOSPC (all but reads)
  truncated,       // end of file (reads)
  crash            // the process is considered dead before the operation: this and all later ones throw CrashError
};

/// Which operations a rule counts. A fault that does not apply to an operation (a truncated write) has no effect.
enum class Counted { reads, writes, fsyncs, renames, changes /* writes, fsyncs and renames */, all };

/// Applies `kind` to the `nth` (from 1) counted operation, once or from then on.
struct FaultRule {
  FaultKind kind;
  Counted counted;
  std::uint64_t nth;
  bool once = true;
};

/// The simulated crash: no later operation reaches the disk.
class CrashError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Counts operations and decides the outcome of each. `seed` determines the lengths of short transfers. Threading: any
/// number of callers.
class FaultInjector {
 public:
  FaultInjector(std::vector<FaultRule> rules, std::uint64_t seed);
  struct Verdict {
    bool faulty = false;
    FaultKind kind = FaultKind::io_error;
    std::uint64_t num_bytes = 0;  // for short transfers: bytes to move
  };
  /// Called once per system call, including resumed and retried ones. Does not throw: a crash is a verdict.
  [[nodiscard]] Verdict next(OperationKind kind, std::uint64_t num_bytes);
  /// Counts one operation outside the engine. Throws IoError (EIO, ENOSPC) or CrashError as the rules say. Faults that
  /// an engine handles itself (interrupted, again, short) do nothing here.
  void check(OperationKind kind, const std::string& path);
  /// Operations of a kind counted so far.
  [[nodiscard]] std::uint64_t count(Counted counted) const;

 private:
  [[nodiscard]] std::uint64_t count_locked(Counted counted) const;

  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;
  std::uint64_t state_;
  std::array<std::uint64_t, 4> counts_{};  // by OperationKind
  bool crashed_ = false;
};

}  // namespace diskhop
