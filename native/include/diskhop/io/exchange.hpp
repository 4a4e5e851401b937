// Moves between memory and files, in pieces: one file is read into the memory of another that is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "diskhop/io/engine.hpp"
#include "diskhop/io/file.hpp"

namespace diskhop {

/// Sums of the pages of each part, see page_sums(): as written, and as read. Zeros for what is not done.
struct ExchangeSums {
  std::vector<std::uint64_t> written;
  std::vector<std::uint64_t> read;
};

inline constexpr std::uint64_t exchange_piece_bytes = std::uint64_t{4} << 20;
/// 32 MiB each way: enough to keep the disk busy while a checksum is computed.
inline constexpr std::size_t exchange_pieces_in_flight = 8;

/// Writes parts of memory, one after the other, to the start of `target`, and reads as much from `source` into them.
/// Either may be null. A piece is read once its memory is written, so that the disk reads one while it writes another,
/// and sums are computed meanwhile. Throws, after all transfers in flight have ended: IoError or CrashError as the
/// engine does; std::invalid_argument for a part that is not a number of whole pages. Memory and target are then
/// partly old and partly new.
[[nodiscard]] ExchangeSums exchange(Engine& engine, std::span<const std::span<std::byte>> parts, const File* target,
                                    const File* source);

}  // namespace diskhop
