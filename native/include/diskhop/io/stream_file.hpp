// Files of many streams that grow at once: how edges go to disk by range and come back a range at a time.
//
// A *stream* is a sequence of bytes, written in *blocks* as these fill; blocks of all streams lie in the file in the
// order they filled, and an index at its end says which is whose. Every block has a sum that is compared when it is
// read.
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

/// Blocks begin at multiples of it and are read and written in multiples of it, so that all goes direct.
inline constexpr std::uint64_t stream_alignment = 4096;

[[nodiscard]] constexpr std::uint64_t whole_sectors(std::uint64_t num_bytes) noexcept {
  return (num_bytes + stream_alignment - 1) / stream_alignment * stream_alignment;
}

/// Where a block lies. `num_bytes` of it are the stream's; what is read and written is whole_sectors of that.
struct StreamBlock {
  std::uint64_t offset = 0;
  std::uint64_t num_bytes = 0;
  std::uint64_t sum = 0;
};

/// A file whose content is not what was written.
class DamagedFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes a file of streams that does not exist yet. Holds a block for each stream and `num_spare_blocks` for those on
/// their way to the disk. The content is complete after finish() and on the disk after an fsync; after an error it is
/// to be thrown away. Threading: one thread.
class StreamFileWriter {
 public:
  /// block_bytes is a power of two from stream_alignment to 2 MiB. Throws IoError where the file cannot be made.
  StreamFileWriter(Engine& engine, BufferPool& pool, const std::string& path, std::size_t num_streams,
                   std::uint64_t block_bytes, std::size_t num_spare_blocks);
  /// Waits for what is in flight.
  ~StreamFileWriter();
  StreamFileWriter(const StreamFileWriter&) = delete;
  StreamFileWriter& operator=(const StreamFileWriter&) = delete;
  StreamFileWriter(StreamFileWriter&&) = delete;
  StreamFileWriter& operator=(StreamFileWriter&&) = delete;

  /// Memory taken from the pool.
  [[nodiscard]] static std::uint64_t memory_bytes(std::size_t num_streams, std::uint64_t block_bytes,
                                                  std::size_t num_spare_blocks) noexcept {
    return (num_streams + num_spare_blocks) * block_bytes;
  }

  /// Adds the first num_bytes of a value to the end of a stream; a block of it holds whole values only. The values of a
  /// file all have one type, of up to 16 bytes, those of a stream one num_bytes, from 1 on.
  template <typename Value>
  void append(std::size_t stream, Value value, std::size_t num_bytes) {
    std::byte*& cursor = cursors_[stream];
    std::memcpy(cursor, &value, sizeof(Value));  // bytes of one length are stored quicker than as many as are wanted
    cursor += num_bytes;
    // Blocks begin at multiples of their length in memory; what is left of this one must hold the next value's store.
    if ((-reinterpret_cast<std::uintptr_t>(cursor) & (block_bytes_ - 1)) < sizeof(Value)) turn_block(stream);
  }

  /// Writes what is left and the index. Throws IoError or CrashError, as append() does, for any write that failed.
  void finish();

 private:
  struct InFlight {
    Ticket ticket;
    std::byte* block;
  };

  /// Sends a full block on its way and gives the stream a new one.
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
  bool is_whole_ = true;  // no write failed
};

/// A file of streams to read; its index is in memory (24 bytes a block). Threading: const members from any thread.
class StreamFile {
 public:
  /// Throws IoError for what cannot be read and DamagedFileError for what is no whole file of streams.
  StreamFile(Engine& engine, const std::string& path);

  [[nodiscard]] const File& file() const noexcept { return file_; }
  [[nodiscard]] std::size_t num_streams() const noexcept { return first_blocks_.size() - 1; }
  /// The most that a block can hold.
  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return block_bytes_; }
  /// In the order of the stream.
  [[nodiscard]] std::span<const StreamBlock> blocks(std::size_t stream) const;
  [[nodiscard]] std::uint64_t num_bytes(std::size_t stream) const;
  /// Compares a block that was read with its sum. Throws DamagedFileError.
  void check(const StreamBlock& block, const std::byte* content) const;

 private:
  File file_;
  std::uint64_t block_bytes_ = 0;
  std::vector<std::uint64_t> first_blocks_;  // by stream, and the end
  std::vector<StreamBlock> blocks_;
};

/// Reads one stream from front to back, several blocks ahead. The engine, file and memory must outlive it.
/// Threading: one thread.
class StreamReader {
 public:
  /// `window` is at least two blocks of the file, aligned to stream_alignment.
  StreamReader(Engine& engine, const StreamFile& file, std::size_t stream, std::span<std::byte> window);
  ~StreamReader();
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;
  StreamReader(StreamReader&&) = delete;
  StreamReader& operator=(StreamReader&&) = delete;

  /// The next block, valid until the following call; empty at the end. Throws IoError or DamagedFileError.
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
