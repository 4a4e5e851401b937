// Scheduling of threads that others wait for.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace diskhop {

/// Requests short time slices for the calling thread, so that it runs soon after it wakes up. A thread that keeps the
/// disk busy mostly waits for it, and the disk idles whenever computing threads first finish slices of milliseconds.
/// The thread's share of the cores does not grow. Linux before 6.12 has one slice length for all threads and ignores
/// this.
inline void request_short_slices() noexcept {
  struct Attributes {  // the kernel's sched_attr, which some C libraries do not declare
    std::uint32_t size = sizeof(Attributes);
    std::uint32_t policy = 0;  // the default policy
    std::uint64_t flags = 0;
    std::int32_t nice = ::getpriority(PRIO_PROCESS, 0);
    std::uint32_t priority = 0;
    std::uint64_t slice_nanoseconds = 100'000;
    std::uint64_t deadline = 0;
    std::uint64_t period = 0;
  } attributes;
  static_assert(sizeof attributes == 48);
  static_cast<void>(::syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace diskhop
