// Files of many streams that grow at once: edges are written by range and read back one range at a time.
//
// A *stream* is a sequence of bytes, written in *blocks* as these fill. Blocks of all streams lie in the file in the
// order in which they filled; an index at the end maps them to streams. Each block has a checksum that is verified on
// reading.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/io/engine.hpp"
#include "diskhop/io/file.hpp"

namespace diskhop {

/// Blocks begin at multiples of this and are read and written in multiples of it, so that all I/O is direct.
inline constexpr std::uint64_t stream_alignment = 4096;

[[nodiscard]] constexpr std::uint64_t whole_sectors(std::uint64_t num_bytes) noexcept {
  return (num_bytes + stream_alignment - 1) / stream_alignment * stream_alignment;
}

/// Position of a block. num_bytes belong to the stream; whole_sectors() of them are read and written.
struct StreamBlock {
  std::uint64_t offset = 0;
  std::uint64_t num_bytes = 0;
  std::uint64_t sum = 0;
};

/// A file whose content differs from what was written.
class DamagedFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes a new file of streams. Memory: a block per stream and num_spare_blocks for blocks in flight. The content is
/// complete after finish(), and on disk after an fsync; after an error the file must be discarded. Threading: one
/// thread.
class StreamFileWriter {
 public:
  /// block_bytes: a power of two from stream_alignment to 2 MiB. Throws IoError if the file cannot be created.
  StreamFileWriter(Engine& engine, BufferPool& pool, const std::string& path, std::size_t num_streams,
                   std::uint64_t block_bytes, std::size_t num_spare_blocks);
  /// Waits for blocks in flight.
  ~StreamFileWriter();
  StreamFileWriter(const StreamFileWriter&) = delete;
  StreamFileWriter& operator=(const StreamFileWriter&) = delete;
  StreamFileWriter(StreamFileWriter&&) = delete;
  StreamFileWriter& operator=(StreamFileWriter&&) = delete;

  /// Bytes taken from the pool.
  [[nodiscard]] static std::uint64_t memory_bytes(std::size_t num_streams, std::uint64_t block_bytes,
                                                  std::size_t num_spare_blocks) noexcept {
    return (num_streams + num_spare_blocks) * block_bytes;
  }

  /// Appends the first num_bytes of a value to a stream; a block has whole values only. All values of a file have one
  /// type, of up to 16 bytes, and all values of a stream the same num_bytes, at least 1.
  template <typename Value>
  void append(std::size_t stream, Value value, std::size_t num_bytes) {
    std::byte*& cursor = cursors_[stream];
    std::memcpy(cursor, &value, sizeof(Value));  // a fixed length is stored faster than num_bytes
    cursor += num_bytes;
    // Blocks are aligned to their length in memory; the rest of this one must fit the next value's store.
    if ((-reinterpret_cast<std::uintptr_t>(cursor) & (block_bytes_ - 1)) < sizeof(Value)) turn_block(stream);
  }

  /// Writes the remaining blocks and the index. Throws IoError or CrashError, as append() does, for any failed write.
  void finish();

 private:
  struct InFlight {
    Ticket ticket;
    std::byte* block;
  };

  /// Writes a full block and gives the stream a new one.
  void turn_block(std::size_t stream);
  void send(std::size_t stream, std::byte* block, std::uint64_t num_bytes);
  void submit(std::byte* begin, std::uint64_t num_bytes);
  void wait_oldest();
  void require_whole() const;

  Engine& engine_;
  File file_;
  std::uint64_t block_bytes_;
  PooledBuffer memory_;
  std::vector<std::byte*> cursors_;  // by stream
  std::vector<std::byte*> free_;
  std::deque<InFlight> in_flight_;
  std::vector<std::vector<StreamBlock>> blocks_;  // by stream
  std::uint64_t end_offset_ = 0;
  bool is_whole_ = true;  // no write has failed
};

/// A file of streams, open for reading. Memory: 24 bytes per block for the index. Threading: const members from any
/// thread.
class StreamFile {
 public:
  /// Throws IoError if the file cannot be read, DamagedFileError if it is not a complete file of streams.
  StreamFile(Engine& engine, const std::string& path);

  [[nodiscard]] const File& file() const noexcept { return file_; }
  [[nodiscard]] std::size_t num_streams() const noexcept { return first_blocks_.size() - 1; }
  /// Largest number of bytes in a block.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return block_bytes_; }
  /// Blocks of a stream, in order.
  [[nodiscard]] std::span<const StreamBlock> blocks(std::size_t stream) const;
  [[nodiscard]] std::uint64_t num_bytes(std::size_t stream) const;
  /// Verifies the checksum of a block that was read. Throws DamagedFileError.
  void check(const StreamBlock& block, const std::byte* content) const;

 private:
  File file_;
  std::uint64_t block_bytes_ = 0;
  std::vector<std::uint64_t> first_blocks_;  // by stream, and the total at the end
  std::vector<StreamBlock> blocks_;
};

/// Reads one stream from front to back, several blocks ahead. Engine, file and memory must outlive it. Threading: one
/// thread.
class StreamReader {
 public:
  /// window: at least two blocks of the file, aligned to stream_alignment.
  StreamReader(Engine& engine, const StreamFile& file, std::size_t stream, std::span<std::byte> window);
  ~StreamReader();
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;
  StreamReader(StreamReader&&) = delete;
  StreamReader& operator=(StreamReader&&) = delete;

  /// Returns the next block, valid until the following call; empty at the end. Throws IoError or DamagedFileError.
  [[nodiscard]] std::span<const std::byte> next();

 private:
  void submit_next();

  Engine& engine_;
  const StreamFile& file_;
  std::span<const StreamBlock> blocks_;
  std::span<std::byte> window_;
  std::size_t num_slots_;
  std::size_t num_submitted_ = 0;
  std::size_t num_returned_ = 0;
  std::deque<Ticket> tickets_;
};

}  // namespace diskhop
