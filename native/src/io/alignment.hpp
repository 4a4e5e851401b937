// Alignment that direct I/O requires, per file.
#pragma once

#include <cstdint>

namespace diskhop {

/// Alignment of offsets and lengths, and of buffers, in bytes; zeros without direct I/O.
struct Alignment {
  std::uint32_t offset = 0;
  std::uint32_t memory = 0;
};

/// Returns the alignment for a descriptor opened with O_DIRECT: reported by the kernel, else found by a read.
[[nodiscard]] Alignment direct_alignment(int descriptor);

/// Finds the smallest alignment that a read accepts, for kernels before 6.1, which do not report it. If nothing can be
/// read (an empty file), returns the largest alignment that disks require.
[[nodiscard]] Alignment tried_alignment(int descriptor);

}  // namespace diskhop
