// Faults on purpose: what a disk, a kernel or a crash can do to the n-th operation.
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
  short_transfer,  // fewer bytes than asked, at least one
  interrupted,     // EINTR
  again,           // EAGAIN
  io_error,        // EIO
  no_space,        // ENOSPC (all but reads)
  truncated,       // end of file (reads)
  crash            // the process is taken to have died before the operation: it and all later ones throw CrashError
};

/// Which operations a rule counts. A fault that cannot befall an operation (a truncated write) leaves it alone.
enum class Counted { reads, writes, fsyncs, renames, changes /* writes, fsyncs and renames */, all };

/// Applies `kind` to the `nth` (from 1) counted operation, once or from then on.
struct FaultRule {
  FaultKind kind;
  Counted counted;
  std::uint64_t nth;
  bool once = true;
};

/// The simulated crash: nothing after it reaches the disk.
class CrashError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Counts operations and says what happens to each. `seed` decides the lengths of short transfers.
/// Threading: any number of callers.
class FaultInjector {
 public:
  FaultInjector(std::vector<FaultRule> rules, std::uint64_t seed);
  struct Verdict {
    bool faulty = false;
    FaultKind kind = FaultKind::io_error;
    std::uint64_t num_bytes = 0;  // for short transfers: how many bytes to move
  };
  /// Called once per system-level operation, resumed and retried ones included. Throws nothing: a crash is a verdict.
  [[nodiscard]] Verdict next(OperationKind kind, std::uint64_t num_bytes);
  /// For operations done outside the engine: counts one; throws IoError (EIO, ENOSPC) or CrashError as the rules say.
  /// What an engine cures by itself (interrupted, again, short) is no fault here.
  void check(OperationKind kind, const std::string& path);
  /// Operations seen so far, of a kind.
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
