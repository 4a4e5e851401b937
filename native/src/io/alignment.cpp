#include "io/alignment.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cstddef>

namespace diskhop {
namespace {

/// Whether the file system is in memory: it accepts O_DIRECT although nothing lies below its page cache.
bool is_page_cache_alone(int descriptor) {
  struct statfs status = {};
  if (::fstatfs(descriptor, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

/// Returns zeros if the kernel reports that direct I/O is refused, or does not report it.
Alignment reported_alignment([[maybe_unused]] int descriptor, [[maybe_unused]] bool& is_reported) {
#ifdef STATX_DIOALIGN
  struct statx status = {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN) != 0) {
    is_reported = true;
    return {status.stx_dio_offset_align, status.stx_dio_mem_align};
  }
#endif
  return {};
}

}  // namespace

Alignment tried_alignment(int descriptor) {
  constexpr std::uint32_t largest = 4096;
  alignas(largest) std::array<std::byte, largest> block;
  for (const std::uint32_t alignment : {512U, largest}) {
    // The smaller alignment must not pass by accident: the address is aligned to exactly 512.
    const ssize_t num_read = ::pread(descriptor, block.data() + alignment % largest, alignment, 0);
    if (num_read > 0) return {alignment, alignment};
    if (num_read == 0) return {largest, largest};
  }
  return {};
}

Alignment direct_alignment(int descriptor) {
  if (is_page_cache_alone(descriptor)) return {};
  bool is_reported = false;
  const Alignment alignment = reported_alignment(descriptor, is_reported);
  return is_reported ? alignment : tried_alignment(descriptor);
}

}  // namespace diskhop
