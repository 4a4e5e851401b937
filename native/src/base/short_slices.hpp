// How soon a thread runs that others wait for.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace diskhop {

/// Lets the calling thread run soon after it wakes up, for a short while at a time. One that keeps the disk busy, and
/// mostly waits for it, leaves it without work whenever threads that compute are first let finish their slices of
/// milliseconds. It gets no larger share of the cores. Linux before 6.12 has one length of slice for all, and ignores
/// this.
inline void ask_for_short_slices() noexcept {
  struct Attributes {  // the kernel's sched_attr, which not every C library declares
    std::uint32_t size = sizeof(Attributes);
    std::uint32_t policy = 0;  // the ordinary one
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
