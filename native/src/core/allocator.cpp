#include "diskhop/allocator.hpp"

#include <climits>
#include <cstdlib>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace diskhop {

bool keep_freed_memory(bool kept) noexcept {
#if defined(__GLIBC__)
  // glibc's own defaults, where it is not to keep any.
  constexpr int default_mmap_max = 65536;
  constexpr int default_block_bytes = 128 << 10;
  const bool is_set = mallopt(M_MMAP_MAX, kept ? 0 : default_mmap_max) == 1 &&
                      mallopt(M_TRIM_THRESHOLD, kept ? INT_MAX : default_block_bytes) == 1 &&
                      // By itself it grows with what is freed, up to 32 MiB, and blocks below it stay in the heap.
                      mallopt(M_MMAP_THRESHOLD, default_block_bytes) == 1;
  if (!kept) malloc_trim(0);
  return is_set;
#else
  static_cast<void>(kept);
  return false;
#endif
}

}  // namespace diskhop
