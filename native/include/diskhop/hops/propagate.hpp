// One hop of pre-propagation for some columns of a hop table: sums over neighbour lists, streamed from disk to disk.
//
// A *hop table* is a file of tiles: rows in *groups* of 4096, each group in *tiles* of 4 columns, row-major within a
// tile. Tile (g, c) begins at value (g * num_tiles + c) * 16384; the last group and tile are padded with zeros. A
// *block* is a few adjacent tiles of all rows in memory, as float. A *pass* computes the same columns of the next hop
// from it. Only the block is resident: lists, scales and rows stream through *staging*, memory of the caller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "diskhop/io/engine.hpp"
#include "diskhop/io/file.hpp"
#include "diskhop/simd/instruction_set.hpp"

namespace diskhop {

inline constexpr std::uint64_t group_rows = 4096;
inline constexpr std::uint64_t tile_columns = 4;
/// Lists are summed in pieces, split wherever the edge array has a multiple of this many edges, and added in order.
inline constexpr std::uint64_t piece_edges = 16'384;

enum class ValueFormat { float32, float16, bfloat16 };
[[nodiscard]] constexpr std::uint64_t value_bytes(ValueFormat format) noexcept {
  return format == ValueFormat::float32 ? 4 : 2;
}

/// Columns of a hop table: the block's tiles, from first_tile on.
struct TableColumns {
  const File* file = nullptr;
  ValueFormat format = ValueFormat::float32;
  std::uint64_t num_tiles = 0;  // number of tiles of the table
  std::uint64_t first_tile = 0;
};

/// Columns of the first num_rows rows. Rows of some lengths straddle one cache line more than needed, every other time.
/// To avoid that, the first num_padded rows are a quarter of a line apart.
struct Block {
  float* data = nullptr;
  std::uint64_t num_rows = 0;
  std::uint64_t num_columns = 0;
  std::uint64_t num_padded = 0;
  std::uint64_t num_spare = 0;  // rows that fit in memory after the last; none if rows are padded

  [[nodiscard]] float* row(std::uint64_t number) const noexcept { return data + place(number); }
  /// Position of a row's first value. Only a number for rows that do not exist.
  [[nodiscard]] std::uint64_t place(std::uint64_t number) const noexcept {
    return number * num_columns + std::min(number, num_padded) * tile_columns;
  }
};

/// Makes a block in memory, starting at a cache line, with as many padded rows as fit. Throws std::invalid_argument if
/// the memory is too small.
[[nodiscard]] Block block_in(std::span<float> memory, std::uint64_t num_rows, std::uint64_t num_columns);

/// In-neighbour lists in CSC: indptr int64 (nodes + 1), indices uint32 or int64 (edges), and perhaps weights float32
/// (edges), each from an offset in a file.
struct ListFiles {
  const File* indptr = nullptr;
  std::uint64_t indptr_offset = 0;
  const File* indices = nullptr;
  std::uint64_t indices_offset = 0;
  unsigned index_bytes = 4;
  std::uint64_t num_nodes = 0;
  std::uint64_t num_edges = 0;
  const File* weights = nullptr;  // null: all 1
  std::uint64_t weights_offset = 0;
};

/// Row i of the output is product_scale * row_scale[i] * (sum of list i's rows, each times its edge's weight +
/// self_weight * row i) + addend_scale * addend[i].
struct PassFormula {
  const File* row_scale = nullptr;  // float32 (nodes), or null: all 1
  float product_scale = 1;
  float self_weight = 0;
  std::optional<TableColumns> addend;
  float addend_scale = 0;
};

/// *Cold* edges: edges with a source of first_row or later, which has no row in the block. The file has their sources,
/// uint32 or int64, in the order of the edge array.
struct ColdSources {
  const File* file = nullptr;
  std::uint64_t num_edges = 0;
  unsigned index_bytes = 4;
};

/// Input of a pass for cold edges. values: rows (edges, columns of the block) as the block would store them, in the
/// order of the edge array. before: for each piece the number of cold edges before it, and finally their total.
struct ColdEdges {
  const File* values = nullptr;
  std::span<const std::uint64_t> before;
};

/// I/O engine and memory of a pass. Staging is aligned to 4096 bytes.
struct Streaming {
  Engine& engine;
  std::span<std::byte> staging;
  unsigned num_threads = 1;
  InstructionSet instructions = best_instruction_set();
};

struct StreamCounts {
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t written_sum = 0;  // checksum of the written pages; see page_sums()
  double seconds_waiting = 0;     // no thread could be given work: bytes or free staging were missing
};

struct PassCounts {
  StreamCounts stream;
  std::uint64_t num_sources = 0;       // one more than the highest node in a list
  std::uint64_t num_bad_rows = 0;      // rows written with a value that is infinite or NaN
  std::vector<std::int64_t> bad_rows;  // the first five, ascending
};

/// Lists that name nodes which do not exist, or with offsets that do not ascend.
class DamagedListsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Fills a block: row i with row first_row + i (the first of a group) of the table, times its scale (float32 (rows); no
/// file: 1).
///
/// This function and the two below read and write large pieces, several in flight, while up to num_threads threads
/// compute. They throw std::invalid_argument for sizes that do not match and for too little staging (naming the
/// minimum), before anything is read; IoError or CrashError for a transfer that failed. Nothing is in flight once they
/// return or throw. After an exception the output is invalid. Written files are complete, but on disk only after an
/// fsync.
StreamCounts load_block(const Streaming& streaming, const TableColumns& table, const File* scale, const Block& block,
                        std::uint64_t first_row = 0);

/// Writes the values of cold edges with sources in a block, from first_row on, padded to a whole page. Throws
/// also DamagedListsError.
StreamCounts write_cold_values(const Streaming& streaming, const ColdSources& sources, const Block& rows,
                               std::uint64_t first_row, const File& values);

/// Writes the block's columns of the next hop; see PassFormula. Adds in float, the pieces of a list in order (see
/// piece_edges), and rounds to nearest even: bits depend neither on threads nor on staging. The block may end at the
/// last row that a list names, unless a row's own value is needed. With cold edges, whose lists have no weights, it may
/// end anywhere; spare rows of the block are then overwritten. Throws also DamagedListsError.
PassCounts run_pass(const Streaming& streaming, const ListFiles& lists, const Block& block, const PassFormula& formula,
                    const TableColumns& out, const std::optional<ColdEdges>& cold = std::nullopt);

}  // namespace diskhop
