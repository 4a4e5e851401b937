// Whether the C library keeps memory that was freed.
#pragma once

namespace diskhop {

/// Fresh memory costs a page fault for every 4 KiB, for a tensor of a mini-batch as much as the arithmetic on it. Kept:
/// large blocks come from the heap as small ones do, and the heap never shrinks, so that the next mini-batch gets the
/// pages of the one before; the process then stays as large as it ever was. Not kept, the C library's default: all
/// that is free now and can be given back is, and large blocks again come and go by themselves.
///
/// Of the whole process. Returns whether it could be had (it is glibc's to give). Threading: any.
bool keep_freed_memory(bool kept) noexcept;

}  // namespace diskhop
