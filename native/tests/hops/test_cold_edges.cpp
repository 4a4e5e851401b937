// Cold edges: a pass that reads them from a file gives the bits of one with all rows resident, or fails as a whole.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/propagate.hpp"
#include "hops.hpp"
#include "io_testing.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

// Space for a few pieces with only cold edges.
constexpr std::uint64_t many_spare = 100'000;

void test_cold_edges_change_no_bit() {
  const Case graph(hub_lengths(), 28, 5);
  const std::vector<std::byte> expected = propagated(graph, {.self_weight = 0});
  for (const std::uint64_t num_resident : {4096, 8192}) {
    for (const unsigned num_threads : {1U, 3U}) {
      const auto same = [&](Ways ways) {
        ways.num_threads = num_threads;
        ways.self_weight = 0;
        ways.num_resident = num_resident;
        check(propagated(graph, ways) == expected, "same bits");
      };
      for (const std::uint64_t staging_bytes : {512 << 10, 1 << 20, 3 << 20, 16 << 20}) {
        same({.staging_bytes = staging_bytes, .tiles_at_once = 1, .num_spare = many_spare});
      }
      for (const std::uint64_t num_spare : {17'000, 34'000, 200'000})
        same({.tiles_at_once = 1, .num_spare = num_spare});
      for (const std::uint64_t tiles_at_once : {1, 2}) {
        for (const unsigned index_bytes : {4U, 8U}) {
          same({.index_bytes = index_bytes, .tiles_at_once = tiles_at_once, .num_spare = many_spare});
        }
      }
      for (const InstructionSet instructions : supported_instruction_sets()) {
        same({.tiles_at_once = 1, .num_spare = many_spare, .instructions = instructions});
      }
    }
  }
  const Case falling(falling_lengths(100), 16, 7);
  const std::vector<std::byte> of_falling = propagated(falling, {.self_weight = 0});
  for (const unsigned num_threads : {1U, 3U}) {
    for (const std::uint64_t num_spare : {17'000, 200'000}) {
      check(propagated(falling,
                       {.num_threads = num_threads, .self_weight = 0, .num_resident = 8192, .num_spare = num_spare}) ==
                of_falling,
            "same bits");
    }
  }
  const Case wide(drawn_lengths(6000, 30, 3), 64, 2);
  for (const std::string& engine : engine_names()) {
    for (const std::uint64_t tiles_at_once : {4, 8, 16}) {
      check(propagated(wide, {.engine = engine,
                              .num_threads = 2,
                              .tiles_at_once = tiles_at_once,
                              .self_weight = 0,
                              .num_resident = 4096,
                              .num_spare = many_spare}) == propagated(wide, {.self_weight = 0}),
            "same bits");
    }
  }
}

/// Hardly any edge is cold: some pieces and loads have none.
void test_few_cold_edges() {
  Case graph(hub_lengths(), 4, 5);
  for (std::size_t edge = 0; edge < graph.indices.size(); ++edge) {
    if (edge % 70'001 != 69'999) graph.indices[edge] %= 4096;
  }
  graph.indices.back() = 8999;
  write_values(graph.folder.file("indices"), graph.indices, Case::indices_offset);
  const Ways ways{.staging_bytes = 512 << 10, .num_threads = 2, .self_weight = 0};
  Ways with_cold = ways;
  with_cold.num_resident = 4096;
  with_cold.num_spare = 2048;
  check(propagated(graph, with_cold) == propagated(graph, ways), "same bits");
  check(run_hop(graph, with_cold).counts.num_sources == 9000, "cold sources count");
}

void test_mismatched_sizes_are_refused() {
  const Case graph(drawn_lengths(9000, 30, 1), 12, 1);
  const auto refused = [&](const Ways& ways) {
    check_throws<std::invalid_argument>([&] { static_cast<void>(propagated(graph, ways)); }, "does not fit");
  };
  const Ways fits{.tiles_at_once = 2, .self_weight = 0, .num_resident = 4096, .num_spare = many_spare};
  Ways ways = fits;
  ways.num_spare = 1000;
  refused(ways);  // no space for the cold edges of a piece
  ways = fits;
  ways.tiles_at_once = 3;
  refused(ways);  // no page has whole rows
  ways = fits;
  ways.self_weight = 1;
  refused(ways);  // own rows must be in the block
}

void test_lists_that_changed_since_are_refused() {
  Case graph(drawn_lengths(9000, 30, 1), 4, 1);
  const Ways ways{.num_threads = 2, .self_weight = 0, .num_resident = 4096, .num_spare = many_spare};
  const auto expected = propagated(graph, ways);
  const auto refused = [&](std::size_t edge, std::uint32_t source) {
    // The file of sources is made from the indices in memory.
    std::vector<std::uint32_t> changed = graph.indices;
    changed[edge] = source;
    write_values(graph.folder.file("indices"), changed, Case::indices_offset);
    const auto error =
        check_throws<DamagedListsError>([&] { static_cast<void>(propagated(graph, ways)); }, "lists that changed");
    check(std::string(error.what()).find("topology is damaged") != std::string::npos, "the error names the damage");
  };
  const auto first_of = [&](bool is_cold) {
    const auto found = std::find_if(graph.indices.begin() + 40'000, graph.indices.end(),
                                    [&](std::uint32_t source) { return (source >= 4096) == is_cold; });
    return static_cast<std::size_t>(found - graph.indices.begin());
  };
  refused(first_of(false), 5000);
  refused(first_of(true), 5);
  refused(first_of(true), 9000);
  write_values(graph.folder.file("indices"), graph.indices, Case::indices_offset);
  check(propagated(graph, ways) == expected, "as it was");
}

void test_a_failed_transfer_fails_the_hop() {
  const Case graph(hub_lengths(), 4, 5);
  const Ways ways{.staging_bytes = 512 << 10, .self_weight = 0, .num_resident = 4096, .num_spare = many_spare};
  const std::vector<std::byte> expected = propagated(graph, ways);
  for (const std::string& engine : engine_names()) {
    for (const std::uint64_t nth : {1, 3, 6, 10, 15, 21, 28}) {
      Ways failing = ways;
      failing.engine = engine;
      failing.num_threads = nth % 2 == 0 ? 1 : 3;
      check_failures(graph, failing, nth, expected);
    }
  }
}

}  // namespace

int main() {
  test_cold_edges_change_no_bit();
  test_few_cold_edges();
  test_mismatched_sizes_are_refused();
  test_lists_that_changed_since_are_refused();
  test_a_failed_transfer_fails_the_hop();
}
