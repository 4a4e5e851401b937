// A file open for the engine: one path, up to two descriptors (direct and buffered).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

namespace diskhop {

enum class OperationKind { read, write, fsync, rename };
[[nodiscard]] const char* name_of(OperationKind kind) noexcept;

/// A failed operation on a file. what() names the file and, for transfers, the offset.
class IoError : public std::system_error {
 public:
  /// what() is "PATH: DETAIL: the system's message", without the message for error number 0 (not a system error).
  IoError(OperationKind kind, int error_number, std::string path, std::uint64_t offset, const std::string& detail);
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }
  [[nodiscard]] OperationKind kind() const noexcept { return kind_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Offset of the failure; for a file that is too short, its end.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

 private:
  OperationKind kind_;
  std::string path_;
  std::uint64_t offset_;
  std::string message_;
};

enum class FileMode { read, write };

/// A regular file: a buffered descriptor and, if the file system supports O_DIRECT, a direct one. An operation uses the
/// direct one if its offset, length and buffer have the alignment that the kernel reports. Threading: const members
/// from any thread. Lifetime: operations refer to a File by address; it must outlive them.
class File {
 public:
  /// Opens for reading, or opens or creates for writing, without truncating. want_direct = false forbids O_DIRECT.
  /// Throws IoError naming the path, also if it is not a regular file.
  File(std::string path, FileMode mode, bool want_direct);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File(File&&) = delete;
  File& operator=(File&&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Current length in bytes.
  [[nodiscard]] std::uint64_t num_bytes() const;
  /// Whether direct I/O is in use; false if the file system refused it.
  [[nodiscard]] bool direct() const noexcept { return direct_descriptor_ >= 0; }
  /// Alignment of offsets and lengths, and of buffers, for direct I/O; 1 without it.
  [[nodiscard]] std::uint32_t offset_alignment() const noexcept { return offset_alignment_; }
  [[nodiscard]] std::uint32_t memory_alignment() const noexcept { return memory_alignment_; }
  /// Whether a transfer has the alignment that direct I/O needs.
  [[nodiscard]] bool goes_direct(std::uint64_t offset, std::uint64_t num_bytes, const void* buffer) const noexcept;
  /// Descriptor to use for a transfer.
  [[nodiscard]] int descriptor_for(std::uint64_t offset, std::uint64_t num_bytes, const void* buffer) const noexcept;

 private:
  void open_direct(int flags);

  std::string path_;
  int buffered_descriptor_ = -1;
  int direct_descriptor_ = -1;
  std::uint32_t offset_alignment_ = 1;
  std::uint32_t memory_alignment_ = 1;
};

}  // namespace diskhop
