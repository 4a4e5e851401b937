// One hop of pre-propagation for some columns of a hop table: sums over neighbour lists, streamed from disk to disk.
//
// A *hop table* is a file of tiles: rows in *groups* of 4096, each group in *tiles* of 4 columns, row-major within a
// tile, tile (g, c) at value (g * num_tiles + c) * 16384; the last group and tile are filled up with zeros. A *block*
// is some adjacent tiles of rows in memory, as float. A *pass* makes of it the same columns of the next hop. Only the
// block is resident: lists, scales and rows stream through *staging*, memory of the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "diskhop/nn/aggregate.hpp"
#include "diskhop/io/engine.hpp"
#include "diskhop/io/file.hpp"

namespace diskhop {

inline constexpr std::uint64_t group_rows = 4096;
inline constexpr std::uint64_t tile_columns = 4;
/// A list's sum is made of sums of its parts, cut where the edge array has a multiple of so many edges, added in order.
inline constexpr std::uint64_t piece_edges = 16'384;

enum class ValueFormat { float32, float16, bfloat16 };
[[nodiscard]] constexpr std::uint64_t value_bytes(ValueFormat format) noexcept {
  return format == ValueFormat::float32 ? 4 : 2;
}

/// Some columns of a hop table: its tiles from first_tile on, as many as the block has.
struct TableColumns {
  const File* file = nullptr;
  ValueFormat format = ValueFormat::float32;
  std::uint64_t num_tiles = 0;  // of the table
  std::uint64_t first_tile = 0;
};

/// Columns of the first num_rows rows. Rows whose length leaves a quarter of a cache line over straddle one line more
/// than they must, every other time: of these the first num_padded are a quarter of a line apart, and never do.
struct Block {
  float* data = nullptr;
  std::uint64_t num_rows = 0;
  std::uint64_t num_columns = 0;
  std::uint64_t num_padded = 0;
  std::uint64_t num_spare = 0;  // rows that its memory has room for behind these; none where some are padded

  [[nodiscard]] float* row(std::uint64_t number) const noexcept { return data + place(number); }
  /// Where a row begins, in values; of a row that is not there, it is only a number.
  [[nodiscard]] std::uint64_t place(std::uint64_t number) const noexcept {
    return number * num_columns + std::min(number, num_padded) * tile_columns;
  }
};

/// A block in memory that begins with a cache line; rows are padded as far as it goes.
/// Throws std::invalid_argument where it is too small.
[[nodiscard]] Block block_in(std::span<float> memory, std::uint64_t num_rows, std::uint64_t num_columns);

/// In-neighbour lists in CSC: indptr int64 (nodes + 1), indices uint32 or int64 (edges), each from an offset of a file.
struct ListFiles {
  const File* indptr = nullptr;
  std::uint64_t indptr_offset = 0;
  const File* indices = nullptr;
  std::uint64_t indices_offset = 0;
  unsigned index_bytes = 4;
  std::uint64_t num_nodes = 0;
  std::uint64_t num_edges = 0;
};

/// Row i of the output is product_scale * row_scale[i] * (sum of list i's rows + self_weight * row i)
/// + addend_scale * addend[i].
struct PassFormula {
  const File* row_scale = nullptr;  // float32 (nodes); none: 1
  float product_scale = 1;
  float self_weight = 0;
  std::optional<TableColumns> addend;
  float addend_scale = 0;
};

/// Edges of some lists whose source is `first_row` or a later one, and has no row in the block (*cold* edges): those
/// sources, uint32 or int64, in the order of the edge array, from the start of a file.
struct ColdSources {
  const File* file = nullptr;
  std::uint64_t num_edges = 0;
  unsigned index_bytes = 4;
};

/// What a pass takes cold edges from. values: rows (edges, columns of the block) as the block would have them, in the
/// order of the edge array. before: of each piece the number of cold edges ahead of it, and at last of all.
struct ColdEdges {
  const File* values = nullptr;
  std::span<const std::uint64_t> before;
};

/// What moves the bytes and how much memory that takes. Staging is aligned to 4096.
struct Streaming {
  Engine& engine;
  std::span<std::byte> staging;
  unsigned num_threads = 1;
  InstructionSet instructions = best_instruction_set();
};

struct StreamCounts {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t written_sum = 0;  // of the pages written; see page_sums()
  double seconds_waiting = 0;     // while nothing could be handed to a thread for want of bytes or of free staging
};

struct PassCounts {
  StreamCounts stream;
  std::uint64_t num_sources = 0;       // one more than the last node that a list names
  std::uint64_t num_bad_rows = 0;      // with a value that is infinite or not a number, as written
  std::vector<std::int64_t> bad_rows;  // the first five, ascending
};

/// Lists that name nodes which do not exist, or do not follow each other.
class DamagedListsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Fills a block, row i with row first_row + i, a group's first, of a table that has at least these, times its scale
/// (float32 (rows); no file: 1).
///
/// All three read and write in large pieces, several in flight, while up to num_threads threads compute. They throw
/// std::invalid_argument for sizes that do not fit together and for too little staging, naming the least, before
/// anything is read; IoError or CrashError for a transfer that failed. Nothing is in flight once they have returned or
/// thrown; what was to be filled is then not to be used. Files that are written are complete, not yet on the disk.
StreamCounts load_block(const Streaming& streaming, const TableColumns& table, const File* scale, const Block& block,
                        std::uint64_t first_row = 0);

/// Writes the values of cold edges, whose sources' rows are in a block from first_row on, filled up to a whole page.
/// Throws also DamagedListsError.
StreamCounts write_cold_values(const Streaming& streaming, const ColdSources& sources, const Block& rows,
                               std::uint64_t first_row, const File& values);

/// Writes the block's columns of the next hop; see PassFormula. Adds in float, a list's parts in order (see
/// piece_edges), rounds to nearest even: bits depend neither on threads nor on staging. The block may end with the last
/// row that a list names, unless a row's own counts; with cold edges, anywhere: spare rows of the block are then
/// written to. Throws also DamagedListsError.
PassCounts run_pass(const Streaming& streaming, const ListFiles& lists, const Block& block, const PassFormula& formula,
                    const TableColumns& out, const std::optional<ColdEdges>& cold = std::nullopt);

}  // namespace diskhop
