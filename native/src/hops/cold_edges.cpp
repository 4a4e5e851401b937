#include "hops/cold_edges.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "hops/table_strips.hpp"
#include "simd/instruction_sets.hpp"

namespace diskhop {
namespace {

// Indices checked together: most groups have no cold edge.
constexpr std::size_t together = 64;
constexpr std::size_t rows_ahead = 16;

void require(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

template <typename Index>
struct Redirect {
  using Unsigned = std::make_unsigned_t<Index>;
  Unsigned* indices;
  std::size_t num_edges;
  std::uint64_t first_cold;
  std::uint64_t next_row;
  std::uint64_t& largest;
  std::uint64_t& num_cold;

  [[gnu::always_inline]] void operator()() const {
    std::uint64_t most = 0;
    std::uint64_t row = next_row;
    for (std::size_t first = 0; first < num_edges; first += together) {
      Unsigned* const some = indices + first;
      const std::size_t count = std::min(num_edges - first, together);
      const std::uint64_t most_here = count == together ? most_of(some, together) : most_of(some, count);
      most = std::max(most, most_here);
      if (most_here < first_cold) continue;
      for (std::size_t i = 0; i < count; ++i) {
        if (some[i] >= first_cold) some[i] = static_cast<Unsigned>(row++);
      }
    }
    largest = most;
    num_cold = row - next_row;
  }

  [[gnu::always_inline]] static Unsigned most_of(const Unsigned* some, std::size_t count) {
    Unsigned most = 0;
    for (std::size_t i = 0; i < count; ++i) most = std::max(most, some[i]);
    return most;
  }
};

template <typename Index>
void gather_rows(const std::byte* sources, std::uint64_t count, const Block& rows, std::uint64_t first_row,
                 const std::string& path, std::byte* out) {
  const std::uint64_t row_bytes = rows.num_columns * sizeof(float);
  const auto number_of = [&](std::uint64_t edge) {
    Index source;
    std::memcpy(&source, sources + edge * sizeof source, sizeof source);
    const auto number = static_cast<std::uint64_t>(source) - first_row;
    if (number < rows.num_rows) return number;
    throw DamagedListsError(path + ": topology is damaged: a cold edge comes from node " + std::to_string(source) +
                            ", must be from " + std::to_string(first_row) + " to " +
                            std::to_string(first_row + rows.num_rows - 1));
  };
  for (std::uint64_t edge = 0; edge < count; ++edge) {
    __builtin_prefetch(rows.row(number_of(std::min(edge + rows_ahead, count - 1))));
    std::memcpy(out + edge * row_bytes, rows.row(number_of(edge)), row_bytes);
  }
}

}  // namespace

ColdWindow::ColdWindow(const std::optional<ColdEdges>& cold, const ListFiles& lists, const Block& block,
                       std::uint64_t number, std::uint64_t num_parts)
    : cold_(cold), lists_(lists), block_(block), row_bytes_(block.num_columns * sizeof(float)) {
  if (!cold_) return;
  const std::span<const std::uint64_t> before = cold_->before;
  require(before.size() == (lists.num_edges + piece_edges - 1) / piece_edges + 1 && before.front() == 0 &&
              std::is_sorted(before.begin(), before.end()),
          "cold edges: there must be an ascending number for each piece, from 0, and the last");
  require(io_alignment % row_bytes_ == 0 && block.num_rows * row_bytes_ % io_alignment == 0,
          "cold edges: a page must hold whole rows, and the block whole pages");
  require(reinterpret_cast<std::uintptr_t>(block.data) % io_alignment == 0, "cold edges: the block begins with a page");
  require(lists.index_bytes == 8 || block.num_rows + block.num_spare <= std::numeric_limits<std::uint32_t>::max(),
          "cold edges: indices must reach the window's last row");
  const std::uint64_t page_rows = io_alignment / row_bytes_;
  num_rows_ = block.num_spare / num_parts / page_rows * page_rows;
  first_row_ = block.num_rows + number * num_rows_;
}

std::uint64_t ColdWindow::slot_rows(std::uint64_t load_pieces) const {
  const std::span<const std::uint64_t> before = cold_->before;
  std::uint64_t most = 0;
  for (std::uint64_t first = 0; first + 1 < before.size(); first += load_pieces) {
    most = std::max(most, before[std::min(first + load_pieces, before.size() - 1)] - before[first]);
  }
  return aligned_read_bytes(most * row_bytes_) / row_bytes_;
}

std::uint64_t ColdWindow::slots_of(std::uint64_t load_pieces) const {
  return cold_ ? num_rows_ / slot_rows(load_pieces) : std::numeric_limits<std::uint64_t>::max();
}

void ColdWindow::share_out(std::uint64_t load_pieces) {
  load_pieces_ = load_pieces;
  if (cold_) slot_rows_ = slot_rows(load_pieces);
}

std::uint64_t ColdWindow::first_cold(std::uint64_t load) const {
  return cold_->before[std::min(load * load_pieces_, cold_->before.size() - 1)];
}

AlignedRead ColdWindow::aligned(std::uint64_t load, std::uint64_t slot) const {
  const std::uint64_t first = first_cold(load);
  auto* const memory = reinterpret_cast<std::byte*>(block_.row(first_row_ + slot * slot_rows_));
  return aligned_read(*cold_->values, first * row_bytes_, (first_cold(load + 1) - first) * row_bytes_, memory);
}

std::optional<Op> ColdWindow::read(std::uint64_t load, std::uint64_t slot) const {
  if (!cold_ || first_cold(load) == first_cold(load + 1)) return std::nullopt;
  return aligned(load, slot).op;
}

std::uint64_t ColdWindow::redirect(std::uint64_t load, std::uint64_t slot, std::byte* indices, std::uint64_t num_edges,
                                   InstructionSet instructions) const {
  const std::uint64_t next_row = first_row_ + slot * slot_rows_ + aligned(load, slot).skipped / row_bytes_;
  std::uint64_t largest = 0;
  std::uint64_t num_cold = 0;
  if (lists_.index_bytes == 4) {
    run_with(instructions, Redirect<std::uint32_t>{reinterpret_cast<std::uint32_t*>(indices), num_edges,
                                                   block_.num_rows, next_row, largest, num_cold});
  } else {
    run_with(instructions, Redirect<std::int64_t>{reinterpret_cast<std::uint64_t*>(indices), num_edges, block_.num_rows,
                                                  next_row, largest, num_cold});
  }
  const std::uint64_t expected = first_cold(load + 1) - first_cold(load);
  if (num_cold == expected || largest >= lists_.num_nodes) return largest;
  throw DamagedListsError(lists_.indices->path() + ": topology is damaged: of the edges from " +
                          std::to_string(load * load_pieces_ * piece_edges) + " on " + std::to_string(num_cold) +
                          " come from nodes from " + std::to_string(block_.num_rows) + " on, and before there were " +
                          std::to_string(expected));
}

StreamCounts write_cold_values(const Streaming& streaming, const ColdSources& sources, const Block& rows,
                               std::uint64_t first_row, const File& values) {
  const std::uint64_t row_bytes = rows.num_columns * sizeof(float);
  const auto sources_bytes = [&](std::uint64_t num_edges) {
    return aligned_read_bytes(num_edges * sources.index_bytes);
  };
  // As many edges at a time as a strip has rows: their values are whole pages too.
  const StripSizes sizes = choose_strips("writing cold edges", streaming.staging.size(), [&](std::uint64_t num_edges) {
    return sources_bytes(num_edges) + num_edges * row_bytes;
  });
  const std::uint64_t num_items = (sources.num_edges + sizes.num_rows - 1) / sizes.num_rows;
  const auto memory_of = [&](std::uint64_t slot) {
    return streaming.staging.data() + slot * (sources_bytes(sizes.num_rows) + sizes.num_rows * row_bytes);
  };
  const auto edges_of = [&](std::uint64_t item) {
    return std::min(sizes.num_rows, sources.num_edges - item * sizes.num_rows);
  };
  const auto sources_read = [&](std::uint64_t item, std::uint64_t slot) {
    return aligned_read(*sources.file, item * sizes.num_rows * sources.index_bytes,
                        edges_of(item) * sources.index_bytes, memory_of(slot));
  };
  const auto values_of = [&](std::uint64_t slot) { return memory_of(slot) + sources_bytes(sizes.num_rows); };
  const auto gather = [&](std::uint64_t item, std::uint64_t slot) {
    const AlignedRead read = sources_read(item, slot);
    const std::byte* const first = read.op.buffer + read.skipped;
    if (sources.index_bytes == 4) {
      gather_rows<std::uint32_t>(first, edges_of(item), rows, first_row, sources.file->path(), values_of(slot));
    } else {
      gather_rows<std::int64_t>(first, edges_of(item), rows, first_row, sources.file->path(), values_of(slot));
    }
    const std::uint64_t num_bytes = edges_of(item) * row_bytes;
    std::memset(values_of(slot) + num_bytes, 0, whole_pages(num_bytes) - num_bytes);
  };
  const auto write_of = [&](std::uint64_t item, std::uint64_t slot) {
    return std::vector<Op>{{.kind = OperationKind::write,
                            .file = &values,
                            .offset = item * sizes.num_rows * row_bytes,
                            .buffer = values_of(slot),
                            .num_bytes = whole_pages(edges_of(item) * row_bytes)}};
  };
  return stream_items(
      streaming, num_items, sizes.num_slots,
      [&](std::uint64_t item, std::uint64_t slot) { return std::vector<Op>{sources_read(item, slot).op}; }, gather,
      write_of);
}

}  // namespace diskhop
