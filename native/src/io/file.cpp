#include "diskhop/io/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/alignment.hpp"

namespace diskhop {

const char* name_of(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::read:
      return "read";
    case OperationKind::write:
      return "write";
    case OperationKind::fsync:
      return "fsync";
    case OperationKind::rename:
      return "rename";
  }
  return "operation";
}

IoError::IoError(OperationKind kind, int error_number, std::string path, std::uint64_t offset,
                 const std::string& detail)
    : std::system_error(error_number, std::generic_category()),
      kind_(kind),
      path_(std::move(path)),
      offset_(offset),
      message_(path_ + ": " + detail + (error_number == 0 ? "" : ": " + code().message())) {}

File::File(std::string path, FileMode mode, bool want_direct) : path_(std::move(path)) {
  const bool writes = mode == FileMode::write;
  const OperationKind kind = writes ? OperationKind::write : OperationKind::read;
  const auto refuse = [&](int error_number, const std::string& detail) {
    return IoError(kind, error_number, path_, 0, detail);
  };
  if (path_.find('\0') != std::string::npos) {
    path_ = path_.c_str();  // cut at the null character, for the message
    throw refuse(0, "a path cannot contain a null character");
  }
  // Checked before opening: opening a pipe would wait for its other end.
  struct stat status = {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) throw refuse(0, "is not a regular file");

  const int flags = (writes ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC;
  buffered_descriptor_ = ::open(path_.c_str(), flags, 0666);
  if (buffered_descriptor_ < 0) {
    throw refuse(errno, writes ? "cannot be opened for writing" : "cannot be opened for reading");
  }
  // All reads are planned: the kernel's readahead would only waste bandwidth.
  if (!writes) ::posix_fadvise(buffered_descriptor_, 0, 0, POSIX_FADV_RANDOM);
  if (want_direct) open_direct(flags & ~O_CREAT);
}

void File::open_direct(int flags) {
  const int descriptor = ::open(path_.c_str(), flags | O_DIRECT);
  if (descriptor < 0) return;
  const Alignment alignment = direct_alignment(descriptor);
  if (alignment.offset == 0 || alignment.memory == 0) {
    ::close(descriptor);
    return;
  }
  direct_descriptor_ = descriptor;
  offset_alignment_ = alignment.offset;
  memory_alignment_ = alignment.memory;
}

File::~File() {
  if (direct_descriptor_ >= 0) ::close(direct_descriptor_);
  if (buffered_descriptor_ >= 0) ::close(buffered_descriptor_);
}

std::uint64_t File::num_bytes() const {
  struct stat status = {};
  if (::fstat(buffered_descriptor_, &status) != 0) {
    throw IoError(OperationKind::read, errno, path_, 0, "its length cannot be read");
  }
  return static_cast<std::uint64_t>(status.st_size);
}

bool File::goes_direct(std::uint64_t offset, std::uint64_t num_bytes, const void* buffer) const noexcept {
  return direct() && (offset | num_bytes) % offset_alignment_ == 0 &&
         reinterpret_cast<std::uintptr_t>(buffer) % memory_alignment_ == 0;
}

int File::descriptor_for(std::uint64_t offset, std::uint64_t num_bytes, const void* buffer) const noexcept {
  return goes_direct(offset, num_bytes, buffer) ? direct_descriptor_ : buffered_descriptor_;
}

}  // namespace diskhop
