// Graphs in files, and a hop over them, a few tiles at a time, in all supported ways.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/propagate.hpp"
#include "diskhop/io/buffer.hpp"
#include "io_testing.hpp"

namespace diskhop::testing {

template <typename Value>
void write_values(const std::string& path, const std::vector<Value>& values, std::uint64_t skipped_bytes = 0) {
  std::ofstream stream(path, std::ios::binary);
  stream << std::string(skipped_bytes, '?');
  stream.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(Value)));
}

inline std::uint64_t padded(std::uint64_t num_rows) { return (num_rows + group_rows - 1) / group_rows * group_rows; }

/// Position of a value in a hop table.
inline std::uint64_t place_of(std::uint64_t row, std::uint64_t column, std::uint64_t num_tiles) {
  const std::uint64_t tile = row / group_rows * num_tiles + column / tile_columns;
  return (tile * group_rows + row % group_rows) * tile_columns + column % tile_columns;
}

/// A graph, features, scales and a table to add, in files.
struct Case {
  /// is_exact: values with sums that are not rounded.
  Case(std::vector<std::int64_t> list_lengths, std::uint64_t columns, unsigned seed, bool is_exact = false)
      : num_nodes(list_lengths.size()), num_columns(columns), num_tiles((columns + 3) / 4) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    indptr.push_back(0);
    for (const std::int64_t length : list_lengths) indptr.push_back(indptr.back() + length);
    for (std::int64_t edge = 0; edge < indptr.back(); ++edge) {
      indices.push_back(static_cast<std::uint32_t>(random() % num_nodes));
    }
    features.resize(padded(num_nodes) * num_tiles * tile_columns);
    addend.resize(features.size());
    for (std::uint64_t row = 0; row < num_nodes; ++row) {
      for (std::uint64_t column = 0; column < num_columns; ++column) {
        const float value = normal(random);
        features[place_of(row, column, num_tiles)] = is_exact ? std::round(value * 4) / 4 : value;
        addend[place_of(row, column, num_tiles)] = normal(random);
      }
      scales.push_back(is_exact ? 0.5F : static_cast<float>(random() % 1000) / 1000);
    }
    scales.resize(padded(num_nodes));
    write_values(folder.file("indptr"), indptr, indptr_offset);
    write_values(folder.file("indices"), indices, indices_offset);
    write_values(folder.file("wide-indices"), std::vector<std::int64_t>(indices.begin(), indices.end()), 8);
    write_values(folder.file("features"), features);
    write_values(folder.file("addend"), addend);
    write_values(folder.file("scales"), scales);
    for (std::size_t edge = 0; edge < indices.size(); ++edge) {
      weights.push_back(static_cast<float>(random() % 17) / 8 - 1);
    }
    write_values(folder.file("weights"), weights, weights_offset);
  }

  [[nodiscard]] double expected(std::uint64_t row, std::uint64_t column, bool is_weighted = false) const {
    double sum = 0;
    for (std::int64_t edge = indptr[row]; edge < indptr[row + 1]; ++edge) {
      sum += scaled(indices[edge], column) * (is_weighted ? static_cast<double>(weights[edge]) : 1.0);
    }
    sum += 0.5 * scaled(row, column);
    return 2.0 * scales[row] * sum + 0.25 * addend[place_of(row, column, num_tiles)];
  }
  [[nodiscard]] double scaled(std::uint64_t row, std::uint64_t column) const {
    return static_cast<double>(scales[row]) * features[place_of(row, column, num_tiles)];
  }

  static constexpr std::uint64_t indptr_offset = 16;
  static constexpr std::uint64_t indices_offset = 4100;
  static constexpr std::uint64_t weights_offset = 8204;
  ScratchFolder folder;
  std::uint64_t num_nodes;
  std::uint64_t num_columns;
  std::uint64_t num_tiles;
  std::vector<std::int64_t> indptr;
  std::vector<std::uint32_t> indices;
  std::vector<float> weights;  // from -1 to 1
  std::vector<float> features;
  std::vector<float> addend;
  std::vector<float> scales;
};

/// Writes the sources from first_cold on, in the order of the edges; returns their number before each piece, and in
/// total.
inline std::vector<std::uint64_t> write_cold_sources(const Case& graph, std::uint64_t first_cold,
                                                     unsigned index_bytes) {
  std::vector<std::uint64_t> before{0};
  std::vector<std::uint32_t> sources;
  for (std::size_t edge = 0; edge < graph.indices.size(); ++edge) {
    if (edge > 0 && edge % piece_edges == 0) before.push_back(sources.size());
    if (graph.indices[edge] >= first_cold) sources.push_back(graph.indices[edge]);
  }
  if (!graph.indices.empty()) before.push_back(sources.size());
  sources.resize(padded(sources.size()));
  if (index_bytes == 4) {
    write_values(graph.folder.file("cold-sources"), sources);
  } else {
    write_values(graph.folder.file("cold-sources"), std::vector<std::int64_t>(sources.begin(), sources.end()));
  }
  return before;
}

struct Ways {
  std::string engine = "threads";
  std::uint64_t staging_bytes = 8 << 20;
  unsigned num_threads = 1;
  unsigned index_bytes = 4;
  ValueFormat out_format = ValueFormat::float32;
  std::uint64_t tiles_at_once = 1000;
  std::uint64_t num_padded = 0;
  float self_weight = 0.5;
  std::uint64_t num_resident = 0;  // rows in the block; 0: all. Edges from other rows are cold
  std::uint64_t num_spare = 0;     // spare rows of the block
  bool is_weighted = false;
  InstructionSet instructions = best_instruction_set();
  std::vector<FaultRule> faults = {};
};

struct Hop {
  std::vector<std::byte> table;
  PassCounts counts;  // counts of the last pass
};

/// Writes the values of cold edges with sources in a block, from first_row on.
inline void write_cold_file(const Streaming& streaming, const Case& graph, const Block& rows, std::uint64_t first_row,
                            std::uint64_t num_edges, unsigned index_bytes) {
  const File sources(graph.folder.file("cold-sources"), FileMode::read, true);
  const ColdSources cold_sources{.file = &sources, .num_edges = num_edges, .index_bytes = index_bytes};
  const File values(graph.folder.file("cold-values"), FileMode::write, true);
  static_cast<void>(write_cold_values(streaming, cold_sources, rows, first_row, values));
}

/// Runs a whole hop, a few tiles at a time.
inline Hop run_hop(const Case& graph, const Ways& ways) {
  Hop hop;
  const auto engine = make_engine(ways.engine, 16, injector_with(ways.faults));
  const Buffer staging(ways.staging_bytes);
  const Streaming streaming{.engine = *engine,
                            .staging = {staging.data(), ways.staging_bytes},
                            .num_threads = ways.num_threads,
                            .instructions = ways.instructions};
  const File features(graph.folder.file("features"), FileMode::read, true);
  const File addend(graph.folder.file("addend"), FileMode::read, true);
  const File scales(graph.folder.file("scales"), FileMode::read, true);
  const File indptr(graph.folder.file("indptr"), FileMode::read, true);
  const bool is_wide = ways.index_bytes == 8;
  const File indices(graph.folder.file(is_wide ? "wide-indices" : "indices"), FileMode::read, true);
  const std::string out_path = graph.folder.file("out");
  std::filesystem::remove(out_path);
  const File out(out_path, FileMode::write, true);
  const File weights(graph.folder.file("weights"), FileMode::read, true);
  const ListFiles lists{.indptr = &indptr,
                        .indptr_offset = Case::indptr_offset,
                        .indices = &indices,
                        .indices_offset = is_wide ? 8 : Case::indices_offset,
                        .index_bytes = ways.index_bytes,
                        .num_nodes = graph.num_nodes,
                        .num_edges = graph.indices.size(),
                        .weights = ways.is_weighted ? &weights : nullptr,
                        .weights_offset = Case::weights_offset};
  const std::uint64_t num_resident = ways.num_resident == 0 ? graph.num_nodes : ways.num_resident;
  const std::uint64_t num_cold_rows = graph.num_nodes - num_resident;
  const std::vector<std::uint64_t> cold_before = write_cold_sources(graph, num_resident, ways.index_bytes);
  for (std::uint64_t first = 0; first < graph.num_tiles; first += ways.tiles_at_once) {
    const std::uint64_t num_columns = std::min(graph.num_tiles - first, ways.tiles_at_once) * tile_columns;
    const std::uint64_t num_rows = std::max(num_resident + ways.num_spare, num_cold_rows);
    const std::uint64_t num_values = num_rows * num_columns + tile_columns * ways.num_padded;
    const Buffer memory(num_values * sizeof(float));
    const std::span<float> values(reinterpret_cast<float*>(memory.data()), num_values);
    std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
    const auto columns = [&](const File& file, ValueFormat format) {
      return TableColumns{.file = &file, .format = format, .num_tiles = graph.num_tiles, .first_tile = first};
    };
    std::optional<File> cold_values;
    std::optional<ColdEdges> cold;
    if (num_cold_rows > 0) {
      const Block rows = block_in(values, num_cold_rows, num_columns);
      static_cast<void>(load_block(streaming, columns(features, ValueFormat::float32), &scales, rows, num_resident));
      write_cold_file(streaming, graph, rows, num_resident, cold_before.back(), ways.index_bytes);
      cold_values.emplace(graph.folder.file("cold-values"), FileMode::read, true);
      cold = {.values = &*cold_values, .before = cold_before};
    }
    const Block block = block_in(values, num_resident, num_columns);
    static_cast<void>(load_block(streaming, columns(features, ValueFormat::float32), &scales, block));
    const PassFormula formula{.row_scale = &scales,
                              .product_scale = 2,
                              .self_weight = ways.self_weight,
                              .addend = columns(addend, ValueFormat::float32),
                              .addend_scale = 0.25};
    hop.counts = run_pass(streaming, lists, block, formula, columns(out, ways.out_format), cold);
  }
  hop.table = file_bytes(out_path);
  return hop;
}

/// Returns the table's bytes, after checking that all values are finite.
inline std::vector<std::byte> propagated(const Case& graph, const Ways& ways) {
  Hop hop = run_hop(graph, ways);
  check(hop.counts.num_bad_rows == 0, "all values are finite");
  return std::move(hop.table);
}

/// Fails the nth transfer of a hop in each way: short ones resume, all others throw.
inline void check_failures(const Case& graph, const Ways& ways, std::uint64_t nth,
                           const std::vector<std::byte>& expected) {
  const auto with = [&](FaultKind kind, Counted counted) {
    Ways faulty = ways;
    faulty.faults = {{.kind = kind, .counted = counted, .nth = nth}};
    return propagated(graph, faulty);
  };
  check(with(FaultKind::short_transfer, Counted::all) == expected, "short ones resume");
  check_throws<IoError>([&] { static_cast<void>(with(FaultKind::io_error, Counted::reads)); }, "a failed read");
  check_throws<IoError>([&] { static_cast<void>(with(FaultKind::truncated, Counted::reads)); },
                        "a file that is too short");
  check_throws<IoError>([&] { static_cast<void>(with(FaultKind::no_space, Counted::writes)); }, "a full disk");
  check_throws<CrashError>([&] { static_cast<void>(with(FaultKind::crash, Counted::all)); }, "a crash");
}

inline std::vector<std::int64_t> drawn_lengths(std::uint64_t num_nodes, std::int64_t most, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> lengths;
  for (std::uint64_t node = 0; node < num_nodes; ++node) {
    lengths.push_back(random() % 3 == 0 ? 0 : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most)));
  }
  return lengths;
}

/// Hubs of several pieces, alone in their pieces, next to each other, and with nodes without edges between them.
inline std::vector<std::int64_t> hub_lengths() {
  const auto piece = static_cast<std::int64_t>(piece_edges);
  std::vector<std::int64_t> lengths = drawn_lengths(9000, 12, 4);
  lengths[0] = 3 * piece;
  lengths[1] = piece;
  lengths[2] = 5 * piece + 17;
  lengths[3] = 0;
  lengths[5000] = 2 * piece - 1;
  lengths[5001] = 7 * piece;
  lengths[8999] = piece + 1;
  return lengths;
}

/// Many edges for the first rows, few for the others except one; the last have none.
inline std::vector<std::int64_t> falling_lengths(std::uint64_t num_empty) {
  std::vector<std::int64_t> lengths = drawn_lengths(8192, 60, 3);
  const std::vector<std::int64_t> few = drawn_lengths(30'001, 4, 4);
  lengths.insert(lengths.end(), few.begin(), few.end());
  lengths[20'000] = static_cast<std::int64_t>(3 * piece_edges);
  lengths.resize(lengths.size() + num_empty);
  return lengths;
}

}  // namespace diskhop::testing
