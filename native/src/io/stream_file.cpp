#include "diskhop/io/stream_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "diskhop/io/content_sum.hpp"

namespace diskhop {
namespace {

constexpr std::uint64_t magic = 0x33736d6165727473;  // "streams3"
constexpr std::uint64_t max_block_bytes = std::uint64_t{2} << 20;

bool is_block_size(std::uint64_t num_bytes) noexcept {
  return std::has_single_bit(num_bytes) && num_bytes >= stream_alignment && num_bytes <= max_block_bytes;
}

/// Last bytes of a file.
struct Trailer {
  std::uint64_t magic;
  std::uint64_t block_bytes;
  std::uint64_t num_streams;
  std::uint64_t num_blocks;
  std::uint64_t index_offset;
  std::uint64_t index_sum;
};

void read_whole(Engine& engine, const File& file, std::uint64_t offset, std::byte* into, std::uint64_t num_bytes) {
  const Op op = {.kind = OperationKind::read, .file = &file, .offset = offset, .buffer = into, .num_bytes = num_bytes};
  engine.wait(engine.submit({&op, 1}, Priority::demand));
}

}  // namespace

StreamFileWriter::StreamFileWriter(Engine& engine, BufferPool& pool, const std::string& path, std::size_t num_streams,
                                   std::uint64_t block_bytes, std::size_t num_spare_blocks)
    : engine_(engine),
      file_(path, FileMode::write, true),
      block_bytes_(block_bytes),
      memory_(pool, memory_bytes(num_streams, block_bytes, num_spare_blocks)),
      blocks_(num_streams) {
  if (!is_block_size(block_bytes) || num_spare_blocks == 0) {
    throw std::invalid_argument("blocks must be a power of two from 4 KiB to 2 MiB, with one to spare, got " +
                                std::to_string(block_bytes) + " bytes");
  }
  for (std::size_t block = num_streams + num_spare_blocks; block > 0; --block) {
    free_.push_back(memory_.data() + (block - 1) * block_bytes);
  }
  for (std::size_t stream = 0; stream < num_streams; ++stream) {
    cursors_.push_back(free_.back());
    free_.pop_back();
  }
}

StreamFileWriter::~StreamFileWriter() {
  while (!in_flight_.empty()) {
    try {
      wait_oldest();
    } catch (...) {  // report the error that caused this, not a later one
    }
  }
}

void StreamFileWriter::turn_block(std::size_t stream) {
  require_whole();
  is_whole_ = false;
  const std::uint64_t last_byte = (reinterpret_cast<std::uintptr_t>(cursors_[stream]) - 1) & (block_bytes_ - 1);
  send(stream, cursors_[stream] - last_byte - 1, last_byte + 1);
  while (free_.empty()) wait_oldest();
  cursors_[stream] = free_.back();
  free_.pop_back();
  is_whole_ = true;
}

void StreamFileWriter::require_whole() const {
  if (!is_whole_) throw std::logic_error(file_.path() + ": a write failed before, nothing more is written");
}

void StreamFileWriter::send(std::size_t stream, std::byte* block, std::uint64_t num_bytes) {
  blocks_[stream].push_back({.offset = end_offset_, .num_bytes = num_bytes, .sum = content_sum(block, num_bytes)});
  const std::uint64_t written_bytes = whole_sectors(num_bytes);
  std::memset(block + num_bytes, 0, written_bytes - num_bytes);
  submit(block, written_bytes);
}

void StreamFileWriter::submit(std::byte* begin, std::uint64_t num_bytes) {
  const Op op = {
      .kind = OperationKind::write, .file = &file_, .offset = end_offset_, .buffer = begin, .num_bytes = num_bytes};
  in_flight_.push_back({.ticket = 0, .block = begin});  // first, so that a ticket is not lost when memory runs out
  try {
    in_flight_.back().ticket = engine_.submit({&op, 1}, Priority::demand);
  } catch (...) {
    in_flight_.pop_back();
    throw;
  }
  end_offset_ += num_bytes;
}

void StreamFileWriter::wait_oldest() {
  const InFlight oldest = in_flight_.front();
  in_flight_.pop_front();
  free_.push_back(oldest.block);
  engine_.wait(oldest.ticket);
}

void StreamFileWriter::finish() {
  require_whole();
  is_whole_ = false;
  for (std::size_t stream = 0; stream < cursors_.size(); ++stream) {
    const std::uint64_t num_bytes = reinterpret_cast<std::uintptr_t>(cursors_[stream]) & (block_bytes_ - 1);
    if (num_bytes > 0) send(stream, cursors_[stream] - num_bytes, num_bytes);
  }
  while (!in_flight_.empty()) wait_oldest();

  std::vector<std::uint64_t> words;
  std::uint64_t num_blocks = 0;
  for (const auto& blocks : blocks_) words.push_back(blocks.size());
  for (const auto& blocks : blocks_) {
    num_blocks += blocks.size();
    for (const StreamBlock& block : blocks) words.insert(words.end(), {block.offset, block.num_bytes, block.sum});
  }
  const std::uint64_t index_bytes = words.size() * sizeof(std::uint64_t);
  const Trailer trailer = {.magic = magic,
                           .block_bytes = block_bytes_,
                           .num_streams = blocks_.size(),
                           .num_blocks = num_blocks,
                           .index_offset = end_offset_,
                           .index_sum = content_sum(reinterpret_cast<const std::byte*>(words.data()), index_bytes)};
  const std::uint64_t tail_bytes = whole_sectors(index_bytes + sizeof(Trailer));
  Buffer index(tail_bytes);
  std::memcpy(index.data(), words.data(), index_bytes);
  std::memcpy(index.data() + tail_bytes - sizeof(Trailer), &trailer, sizeof(Trailer));
  submit(index.data(), tail_bytes);
  const Ticket ticket = in_flight_.front().ticket;
  in_flight_.clear();
  engine_.wait(ticket);
}

StreamFile::StreamFile(Engine& engine, const std::string& path) : file_(path, FileMode::read, true) {
  const auto refuse = [&] { return DamagedFileError(path + ": is no whole file of streams"); };
  const std::uint64_t num_bytes = file_.num_bytes();
  if (num_bytes < stream_alignment || num_bytes % stream_alignment != 0) throw refuse();
  const Buffer page(stream_alignment);
  read_whole(engine, file_, num_bytes - stream_alignment, page.data(), stream_alignment);
  Trailer trailer = {};
  std::memcpy(&trailer, page.data() + stream_alignment - sizeof(Trailer), sizeof(Trailer));
  if (trailer.magic != magic || !is_block_size(trailer.block_bytes) || trailer.index_offset > num_bytes ||
      trailer.num_streams > num_bytes || trailer.num_blocks > num_bytes) {
    throw refuse();
  }
  const std::uint64_t num_words = trailer.num_streams + 3 * trailer.num_blocks;
  if (whole_sectors(8 * num_words + sizeof(Trailer)) != num_bytes - trailer.index_offset) throw refuse();
  const Buffer index(num_bytes - trailer.index_offset);
  read_whole(engine, file_, trailer.index_offset, index.data(), num_bytes - trailer.index_offset);
  if (content_sum(index.data(), 8 * num_words) != trailer.index_sum) throw refuse();

  block_bytes_ = trailer.block_bytes;
  const auto word = [&](std::uint64_t number) {
    std::uint64_t value = 0;
    std::memcpy(&value, index.data() + 8 * number, 8);
    return value;
  };
  first_blocks_.push_back(0);
  for (std::uint64_t stream = 0; stream < trailer.num_streams; ++stream) {
    if (word(stream) > trailer.num_blocks - first_blocks_.back()) throw refuse();
    first_blocks_.push_back(first_blocks_.back() + word(stream));
  }
  if (first_blocks_.back() != trailer.num_blocks) throw refuse();
  blocks_.reserve(trailer.num_blocks);
  for (std::uint64_t number = trailer.num_streams; number < num_words; number += 3) {
    const StreamBlock& block = blocks_.emplace_back(word(number), word(number + 1), word(number + 2));
    if (block.num_bytes == 0 || block.num_bytes > block_bytes_ || block.offset > trailer.index_offset ||
        whole_sectors(block.num_bytes) > trailer.index_offset - block.offset) {
      throw refuse();
    }
  }
}

std::span<const StreamBlock> StreamFile::blocks(std::size_t stream) const {
  return std::span(blocks_).subspan(first_blocks_.at(stream), first_blocks_.at(stream + 1) - first_blocks_[stream]);
}

std::uint64_t StreamFile::num_bytes(std::size_t stream) const {
  std::uint64_t num_bytes = 0;
  for (const StreamBlock& block : blocks(stream)) num_bytes += block.num_bytes;
  return num_bytes;
}

void StreamFile::check(const StreamBlock& block, const std::byte* content) const {
  if (content_sum(content, block.num_bytes) != block.sum) {
    throw DamagedFileError(file_.path() + ": the block at offset " + std::to_string(block.offset) +
                           " does not match its checksum");
  }
}

StreamReader::StreamReader(Engine& engine, const StreamFile& file, std::size_t stream, std::span<std::byte> window)
    : engine_(engine),
      file_(file),
      blocks_(file.blocks(stream)),
      window_(window),
      num_slots_(window.size() / file.block_bytes()) {
  if (num_slots_ < 2) throw std::invalid_argument("a stream is read through a window of at least two blocks");
}

StreamReader::~StreamReader() {
  for (const Ticket ticket : tickets_) {
    try {
      engine_.wait(ticket);
    } catch (...) {  // these reads are not needed any more
    }
  }
}

void StreamReader::submit_next() {
  const StreamBlock& block = blocks_[num_submitted_];
  const Op op = {.kind = OperationKind::read,
                 .file = &file_.file(),
                 .offset = block.offset,
                 .buffer = window_.data() + num_submitted_ % num_slots_ * file_.block_bytes(),
                 .num_bytes = whole_sectors(block.num_bytes)};
  tickets_.push_back(0);  // first, so that a ticket is not lost when memory runs out
  try {
    tickets_.back() = engine_.submit({&op, 1}, Priority::demand);
  } catch (...) {
    tickets_.pop_back();
    throw;
  }
  ++num_submitted_;
}

std::span<const std::byte> StreamReader::next() {
  // The block last returned is free now. Reads may be in flight in all slots but that of the block returned next.
  while (num_submitted_ < blocks_.size() && num_submitted_ < num_returned_ + num_slots_) submit_next();
  if (num_returned_ == blocks_.size()) return {};
  const Ticket ticket = tickets_.front();
  tickets_.pop_front();
  const StreamBlock& block = blocks_[num_returned_];
  const std::byte* const content = window_.data() + num_returned_ % num_slots_ * file_.block_bytes();
  ++num_returned_;
  engine_.wait(ticket);
  file_.check(block, content);
  return {content, block.num_bytes};
}

}  // namespace diskhop
