// What direct I/O asks of a transfer, file by file.
#pragma once

#include <cstdint>

namespace diskhop {

/// Of offsets and lengths, and of buffers, in bytes; zeros where there is no direct I/O.
struct Alignment {
  std::uint32_t offset = 0;
  std::uint32_t memory = 0;
};

/// For a descriptor opened with O_DIRECT: what the kernel reports, else what a read finds out.
[[nodiscard]] Alignment direct_alignment(int descriptor);

/// For kernels before 6.1, which do not report it: the smallest alignment that a read gets away with. Where nothing can
/// be read, as in an empty file, a read proves nothing: then the largest that disks ask for.
[[nodiscard]] Alignment tried_alignment(int descriptor);

}  // namespace diskhop
