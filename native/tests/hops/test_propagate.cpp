// Passes: they equal a dense product, in the same bits for any split, and fail as a whole.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/propagate.hpp"
#include "diskhop/io/buffer.hpp"
#include "hops.hpp"
#include "io_testing.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

void check_product(const Case& graph, const std::vector<std::byte>& table, bool is_weighted = false) {
  check(table.size() == graph.features.size() * sizeof(float), "the table has whole groups and tiles");
  std::vector<float> values(graph.features.size());
  std::memcpy(values.data(), table.data(), table.size());
  std::vector<bool> is_row(values.size());
  for (std::uint64_t row = 0; row < graph.num_nodes; ++row) {
    double magnitude = 1;
    for (std::int64_t edge = graph.indptr[row]; edge < graph.indptr[row + 1]; ++edge) magnitude += 1;
    for (std::uint64_t column = 0; column < graph.num_columns; ++column) {
      const std::uint64_t place = place_of(row, column, graph.num_tiles);
      is_row[place] = true;
      const double expected = graph.expected(row, column, is_weighted);
      check(std::abs(values[place] - expected) <= 1e-6 * magnitude,
            "row " + std::to_string(row) + ", column " + std::to_string(column) + ": " + std::to_string(values[place]) +
                " is the product, " + std::to_string(expected));
    }
  }
  for (std::uint64_t place = 0; place < values.size(); ++place) {
    check(is_row[place] || std::bit_cast<std::uint32_t>(values[place]) == 0, "the rest is zeros");
  }
}

void test_a_pass_equals_the_dense_product() {
  for (const std::string& engine : engine_names()) {
    check_product(Case(drawn_lengths(5000, 30, 1), 10, 1),
                  propagated(Case(drawn_lengths(5000, 30, 1), 10, 1), {.engine = engine}));
  }
  for (const std::uint64_t columns : {1, 4, 8, 12, 16, 20, 28, 64, 76, 136}) {
    const Case graph(drawn_lengths(300, 30, 2), columns, 3);
    for (const unsigned index_bytes : {4U, 8U}) {
      check_product(graph, propagated(graph, {.num_threads = 2, .index_bytes = index_bytes}));
    }
  }
}

void test_neither_threads_nor_memory_nor_columns_change_a_bit() {
  const Case graph(hub_lengths(), 28, 5);
  const std::vector<std::byte> expected = propagated(graph, {});
  check_product(graph, expected);
  for (const unsigned num_threads : {1U, 2U, 3U}) {
    for (const std::uint64_t staging_bytes : {512 << 10, 1 << 20, 3 << 20, 16 << 20}) {
      check(propagated(graph, {.staging_bytes = staging_bytes, .num_threads = num_threads}) == expected, "same bits");
    }
    for (const std::uint64_t tiles_at_once : {1, 2, 3, 4}) {
      check(propagated(graph, {.num_threads = num_threads, .tiles_at_once = tiles_at_once}) == expected, "same bits");
    }
    for (const std::uint64_t num_padded : {1, 4097, 9000, 9001}) {
      check(propagated(graph, {.num_threads = num_threads, .tiles_at_once = 3, .num_padded = num_padded}) == expected,
            "same bits");
    }
  }
  for (const InstructionSet instructions : supported_instruction_sets()) {
    for (const unsigned index_bytes : {4U, 8U}) {
      check(propagated(graph, {.index_bytes = index_bytes, .instructions = instructions}) == expected, "same bits");
    }
  }
}

/// Rows with few edges are a stretch of their own if memory suffices for two; both stretches run concurrently.
void test_a_stretch_of_rows_with_few_edges_changes_no_bit() {
  for (const std::uint64_t num_empty : {0, 9000}) {
    const Case graph(falling_lengths(num_empty), 12, 8);
    const std::vector<std::byte> expected = propagated(graph, {.staging_bytes = 1 << 20});
    check_product(graph, expected);
    for (const std::string& engine : engine_names()) {
      for (const unsigned num_threads : {1U, 2U, 3U}) {
        for (const std::uint64_t staging_bytes : {4 << 20, 16 << 20}) {
          const Ways ways{.engine = engine, .staging_bytes = staging_bytes, .num_threads = num_threads};
          check(propagated(graph, ways) == expected, "same bits");
        }
      }
    }
  }
}

void test_weighted_edges() {
  for (const std::uint64_t columns : {1, 12, 28, 76}) {
    const Case graph(hub_lengths(), columns, 6);
    const std::vector<std::byte> expected = propagated(graph, {.is_weighted = true});
    check_product(graph, expected, true);
    for (const std::string& engine : engine_names()) {
      for (const unsigned index_bytes : {4U, 8U}) {
        for (const std::uint64_t staging_bytes : {640 << 10, 1 << 20, 16 << 20}) {
          const Ways ways{.engine = engine,
                          .staging_bytes = staging_bytes,
                          .num_threads = 2,
                          .index_bytes = index_bytes,
                          .tiles_at_once = 5,
                          .is_weighted = true};
          check(propagated(graph, ways) == expected, "same bits");
        }
      }
    }
    for (const InstructionSet instructions : supported_instruction_sets()) {
      check(propagated(graph, {.is_weighted = true, .instructions = instructions}) == expected, "same bits");
    }
  }
}

void test_graphs_of_almost_nothing() {
  for (const std::uint64_t num_nodes : {1, 511, 512, 4096, 4097}) {
    for (const unsigned num_threads : {1U, 3U}) {
      const Case without_edges(std::vector<std::int64_t>(num_nodes), 6, 1);
      check_product(without_edges, propagated(without_edges, {.num_threads = num_threads}));
      std::vector<std::int64_t> lengths(num_nodes);
      lengths.back() = static_cast<std::int64_t>(2 * piece_edges);
      const Case one_list(lengths, 6, 1, true);
      check_product(one_list, propagated(one_list, {.staging_bytes = 512 << 10, .num_threads = num_threads}));
    }
  }
  const Case empty(std::vector<std::int64_t>{}, 4, 1);
  check(propagated(empty, {}).empty(), "no nodes, no table");
}

/// A piece ends in a strip while another piece's rows need the strip's slot.
void test_one_slot_of_each_kind_is_enough() {
  std::vector<std::int64_t> lengths(20'000);
  lengths[10] = static_cast<std::int64_t>(piece_edges) + 100;
  lengths[19'000] = 3;
  const Case graph(lengths, 12, 9);
  check_product(graph, propagated(graph, {.staging_bytes = 200 << 10, .num_threads = 3}));
  const auto error = check_throws<std::invalid_argument>(
      [&] { static_cast<void>(propagated(graph, {.staging_bytes = 64 << 10})); }, "too little is refused");
  check(std::string(error.what()).find("at least") != std::string::npos, "the least is named");
}

template <typename Value>
Value nearest_even(float value, int fraction_bits, int least_exponent, float largest) {
  // In double, every step is exact except the rounding.
  if (std::isnan(value)) return {static_cast<std::uint16_t>(fraction_bits == 10 ? 0x7e00 : 0x7fc0)};
  const double magnitude = std::abs(static_cast<double>(value));
  int exponent = 0;
  static_cast<void>(std::frexp(magnitude, &exponent));
  const double unit = std::ldexp(1.0, std::max(exponent - 1, least_exponent) - fraction_bits);
  const double rounded = std::nearbyint(magnitude / unit) * unit;
  const std::uint16_t infinite = fraction_bits == 10 ? 0x7c00 : 0x7f80;
  std::uint16_t bits = rounded == 0 ? 0 : infinite;
  if (rounded > 0 && rounded <= static_cast<double>(largest)) {
    int e = 0;
    static_cast<void>(std::frexp(rounded, &e));
    const int normal = std::max(e - 1, least_exponent);
    const auto fraction = static_cast<int>(rounded / std::ldexp(1.0, normal - fraction_bits));
    bits = static_cast<std::uint16_t>(((normal - least_exponent) << fraction_bits) + fraction);
  }
  return {static_cast<std::uint16_t>(bits | (std::signbit(value) ? 0x8000 : 0))};
}

template <std::size_t lanes>
struct Halve {
  const std::vector<float>& values;
  std::vector<Float16>& halves;

  [[gnu::always_inline]] void operator()() const {
    for (std::size_t first = 0; first < values.size(); first += vector_floats) {
      const std::size_t count = std::min(vector_floats, values.size() - first);
      Floats<lanes> floats;
      load(values.data() + first, count, floats);
      store(halves.data() + first, count, floats);
    }
  }
};

void test_float16_is_rounded_to_nearest_even() {
  std::vector<float> values{0.0F,
                            -0.0F,
                            65504.0F,
                            65519.0F,
                            65520.0F,
                            0x1p-24F,
                            0x1p-25F,
                            0x1.8p-24F,
                            0x1.000002p-25F,
                            0x1p-14F,
                            0x1.ffcp-15F,
                            0x1.fffp-15F,
                            1.00048828125F,
                            1.00146484375F,
                            std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::denorm_min()};
  std::mt19937 random(3);
  while (values.size() < 100'000) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  while (values.size() < 200'000) {
    values.push_back(std::ldexp(static_cast<float>(random()) / 0x1p32F + 1.0F, static_cast<int>(random() % 44) - 27));
  }
  std::vector<Float16> halves(values.size());
  for (const InstructionSet instructions : supported_instruction_sets()) {
    with_instructions(instructions, [&](auto set) { set.run(Halve<set.lanes>{values, halves}); });
    for (std::size_t place = 0; place < values.size(); ++place) {
      const auto expected = nearest_even<Float16>(values[place], 10, -14, 65504.0F);
      if (std::isnan(values[place])) {
        check((halves[place].bits & 0x7fff) == expected.bits, "not a number stays none");
      } else {
        check(halves[place].bits == expected.bits, "float16 is the nearest, " + std::to_string(values[place]));
      }
    }
  }
}

void test_tables_of_16_bits() {
  const Case graph(hub_lengths(), 12, 6);
  const std::vector<std::byte> floats = propagated(graph, {});
  for (const ValueFormat format : {ValueFormat::float16, ValueFormat::bfloat16}) {
    const std::vector<std::byte> table = propagated(graph, {.num_threads = 2, .out_format = format});
    check(table.size() * 2 == floats.size(), "two bytes a value");
    for (std::size_t place = 0; place < table.size() / 2; ++place) {
      float value;
      std::uint16_t bits;
      std::memcpy(&value, floats.data() + 4 * place, 4);
      std::memcpy(&bits, table.data() + 2 * place, 2);
      const auto expected = format == ValueFormat::float16 ? nearest_even<Float16>(value, 10, -14, 65504.0F).bits
                                                           : nearest_even<Bfloat16>(value, 7, -126, 3.3e38F).bits;
      check(bits == expected, "the nearest of the float32 table");
    }
  }
}

void test_values_that_16_bits_do_not_hold_are_found() {
  Case graph(std::vector<std::int64_t>(20), 4, 6, true);
  graph.features[place_of(7, 2, 1)] = 1e6F;
  write_values(graph.folder.file("features"), graph.features);
  const auto bad_rows = [&](ValueFormat format) { return run_hop(graph, {.out_format = format}).counts.bad_rows; };
  check(bad_rows(ValueFormat::float32).empty() && bad_rows(ValueFormat::bfloat16).empty(), "large ones are held");
  check(bad_rows(ValueFormat::float16) == std::vector<std::int64_t>({7}), "float16 has none so large");
}

void test_bad_values_are_found_by_row() {
  Case graph(std::vector<std::int64_t>(9000), 12, 6);
  const std::vector<std::uint64_t> bad{8999, 4096, 17, 18, 6000, 5000, 8000};
  for (const std::uint64_t row : bad) {
    graph.features[place_of(row, row % 12, 3)] =
        row % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
  }
  graph.features[place_of(17, 0, 3)] = std::numeric_limits<float>::infinity();
  write_values(graph.folder.file("features"), graph.features);
  for (const ValueFormat format : {ValueFormat::float32, ValueFormat::float16, ValueFormat::bfloat16}) {
    const PassCounts counts = run_hop(graph, {.num_threads = 3, .out_format = format}).counts;
    check(counts.num_bad_rows == bad.size(), "each once");
    check(counts.bad_rows == std::vector<std::int64_t>({17, 18, 4096, 5000, 6000}), "the first of them");
  }
}

void test_a_failed_transfer_fails_the_pass() {
  const Case graph(hub_lengths(), 12, 5);
  const std::vector<std::byte> expected = propagated(graph, {});
  for (const std::string& engine : engine_names()) {
    for (const unsigned num_threads : {1U, 3U}) {
      for (const std::uint64_t nth : {1, 2, 5, 9, 14, 20}) {
        const Ways ways{.engine = engine, .staging_bytes = 512 << 10, .num_threads = num_threads};
        check_failures(graph, ways, nth, expected);
      }
    }
  }
}

void test_damaged_lists_are_refused() {
  Case graph(drawn_lengths(9000, 30, 1), 8, 1);
  const auto refused = [&](const std::string& what) {
    const auto error =
        check_throws<DamagedListsError>([&] { static_cast<void>(propagated(graph, {.num_threads = 2})); }, what);
    check(std::string(error.what()).find("topology is damaged") != std::string::npos, what);
  };
  const std::uint32_t index = std::exchange(graph.indices[70'000], 9000);
  write_values(graph.folder.file("indices"), graph.indices, Case::indices_offset);
  refused("a node that does not exist");
  graph.indices[70'000] = index;
  write_values(graph.folder.file("indices"), graph.indices, Case::indices_offset);
  for (const std::uint64_t row : {0, 512, 4096, 7000, 9000}) {
    const std::int64_t begin = std::exchange(graph.indptr[row], graph.indptr[row] + 10'000);
    write_values(graph.folder.file("indptr"), graph.indptr, Case::indptr_offset);
    refused("lists that do not follow each other");
    graph.indptr[row] = begin;
  }
}

}  // namespace

int main() {
  test_a_pass_equals_the_dense_product();
  test_neither_threads_nor_memory_nor_columns_change_a_bit();
  test_a_stretch_of_rows_with_few_edges_changes_no_bit();
  test_weighted_edges();
  test_graphs_of_almost_nothing();
  test_one_slot_of_each_kind_is_enough();
  test_float16_is_rounded_to_nearest_even();
  test_tables_of_16_bits();
  test_bad_values_are_found_by_row();
  test_values_that_16_bits_do_not_hold_are_found();
  test_a_failed_transfer_fails_the_pass();
  test_damaged_lists_are_refused();
}
