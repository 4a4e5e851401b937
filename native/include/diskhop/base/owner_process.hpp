// The process that made an object with threads or a ring, which a fork does not copy.
#pragma once

#include <unistd.h>

#include <stdexcept>
#include <string>

namespace diskhop {

/// An object was used in a forked child of the process that made it.
class ForkedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Remembers the process that it was made in. Threading: any thread.
class OwnerProcess {
 public:
  /// what: the object's name in messages, with static lifetime.
  explicit OwnerProcess(const char* what) : what_(what) {}

  [[nodiscard]] bool is_here() const { return ::getpid() == process_; }

  /// Throws ForkedError in a forked child, where a wait for the object's threads would not end.
  void require_here() const {
    if (is_here()) return;
    throw ForkedError("this " + std::string(what_) + " is of process " + std::to_string(process_) +
                      ", whose threads and requests a fork does not copy to process " + std::to_string(::getpid()) +
                      "; make a new one in the process that uses it");
  }

 private:
  const char* what_;
  pid_t process_ = ::getpid();
};

}  // namespace diskhop
