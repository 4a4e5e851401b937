#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "diskhop/base/permutation.hpp"
#include "diskhop/sampling/importance.hpp"
#include "io_testing.hpp"
#include "sampled_graphs.hpp"
#include "sampling/keep_rules.hpp"
#include "sampling/node_draws.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_equal;
using diskhop::testing::check_throws;
using diskhop::testing::engine_names;
using diskhop::testing::GraphOnDisk;
using diskhop::testing::injector_with;
using diskhop::testing::make_graph;
using diskhop::testing::no_pool;
using diskhop::testing::ScratchFolder;

namespace {

const std::array methods{ImportanceMethod::labor, ImportanceMethod::balanced_labor, ImportanceMethod::ladies,
                         ImportanceMethod::fastgcn};

std::string name_of(ImportanceMethod method) { return "method " + std::to_string(static_cast<int>(method)); }

void test_a_limit_of_draws_is_their_fraction() {
  for (std::uint64_t number = 0; number < 20'000; ++number) {
    const std::uint64_t word = draw64(1, number);
    const auto length = static_cast<double>(1 + word % 5000);
    const double probability = std::floor(length * static_cast<double>(number % 100) / 100) / length;
    const std::uint64_t limit = num_draws_below(probability);
    for (const std::uint64_t draw : {limit, limit - 1, word >> draw_shift}) {
      if (draw >> (64 - draw_shift) != 0) continue;  // no draw has more bits
      check((draw < limit) == (as_fraction(draw) < probability), "a draw is below the limit if its fraction is");
    }
  }
  check(num_draws_below(1) == std::uint64_t{1} << (64 - draw_shift), "all draws are below 1");
  check(num_draws_below(0) == 0, "none is below 0");
}

void test_a_scale_makes_the_sum() {
  for (std::uint64_t number = 0; number < 500; ++number) {
    std::vector<double> sizes;
    const std::uint64_t count = 2 + draw64(number, 0) % 60;
    for (std::uint64_t place = 0; place < count; ++place) {
      const double fraction = as_fraction(draw64(number, 1 + place) >> draw_shift);
      sizes.push_back(std::pow(fraction, 6) + 1e-9);
    }
    const std::uint64_t wanted = 1 + draw64(number, 100) % count;
    const double scale = find_scale(sizes, wanted);
    double sum = 0;
    for (const double size : sizes) sum += std::min(1.0, scale * size);
    check(std::abs(sum - static_cast<double>(wanted)) < 1e-9 * static_cast<double>(count), "the sum is as wanted");
  }
  // One of two sizes is so small that the other alone makes the sum.
  const std::array tiny{1.0, 1e-17};
  check(find_scale(tiny, 1) == 1, "a size that rounding raises to 1 leaves the scale as it is");
}

/// Lists in memory, partly cached or all on the disk, and threads, change nothing.
template <typename Index>
void test_lists_on_the_disk_give_the_same_batches() {
  const ScratchFolder folder;
  const auto graph = make_graph<Index>(800, 60);
  const auto order = keyed_permutation(800, 0, 0, 0);
  for (const std::string& engine_name : engine_names()) {
    const auto engine = make_engine(engine_name, 16, nullptr);
    for (const std::size_t share : {0, 8, 16}) {
      GraphOnDisk<Index> on_disk(graph, folder.file("indices"), *engine,
                                 [&](std::size_t node) { return mix64(node) % 16 < share; });
      for (const ImportanceMethod method : methods) {
        const ImportanceOptions options{.method = method, .batch_dependency = 3};
        const std::vector<std::int64_t> fanouts{method >= ImportanceMethod::ladies ? 200 : 6, -1};
        const auto expected = make_importance_sampler(graph.topology(), fanouts, options);
        const auto cached = make_importance_sampler(on_disk.topology(graph), fanouts, options);
        std::vector<std::jthread> threads;
        for (std::uint64_t thread = 0; thread < 3; ++thread) {
          threads.emplace_back([&, thread] {
            for (std::uint64_t number = thread; number < 6; number += 3) {
              const std::span<const std::int64_t> seeds{order.data() + number * 10, 1 + number * 5};
              const SampledBlocks batch = cached->sample(seeds, {}, {.batch = number}, no_pool());
              check_equal(batch, expected->sample(seeds, {}, {.batch = number}, no_pool()), name_of(method));
              check(batch.edge_weights.size() == (has_edge_weights(method) ? batch.sources.size() : 0), "weights");
            }
          });
        }
        threads.clear();
        check(cached->reading_bytes() > 0 && cached->workspace_bytes() > 0, "memory is counted");
      }
    }
  }
}

/// A hub's list is longer than a piece, and than a part of a list.
void test_long_lists_keep_their_share() {
  auto graph = make_graph<std::uint32_t>(200'000, 3);
  for (std::uint32_t edge = 0; edge < 150'000; ++edge) graph.indices.push_back(edge);
  graph.indptr.push_back(static_cast<std::int64_t>(graph.indices.size()));
  const std::vector<std::int64_t> seeds{5, 200'000, 7};
  for (const ImportanceMethod method : methods) {
    const auto sampler = make_importance_sampler(graph.topology(), {1000}, {.method = method});
    const SampledBlocks batch = sampler->sample(seeds, {}, {}, no_pool());
    const auto kept = static_cast<double>(batch.indptr[2] - batch.indptr[1]);
    // FastGCN draws 1000 of all nodes, three quarters of which are in the list.
    const double wanted = method == ImportanceMethod::fastgcn ? 750 : 1000;
    check(std::abs(kept - wanted) < 150, name_of(method) + " keeps as many of the hub's list as wanted");
    check(std::ranges::is_sorted(batch.edge_positions), "in the order of the list");
    const auto all = make_importance_sampler(graph.topology(), {-1}, {.method = method});
    const SampledBlocks whole = all->sample(seeds, {}, {}, no_pool());
    check(whole.indptr[2] - whole.indptr[1] == 150'000, "all neighbours if all are wanted");
    check(std::ranges::all_of(whole.edge_weights, [](float weight) { return weight == 1; }), "with weight 1");
  }
}

void test_damaged_lists_and_failed_reads_leave_the_sampler_usable() {
  const ScratchFolder folder;
  auto graph = make_graph<std::uint32_t>(2000, 30);
  const std::vector<std::int64_t> seeds{1, 2, 3, 4};
  for (const ImportanceMethod method : methods) {
    const auto sampler = make_importance_sampler(graph.topology(), {3}, {.method = method});
    const SampledBlocks expected = sampler->sample(seeds, {}, {}, no_pool());
    const std::uint32_t before = graph.indices[graph.indptr[2]];
    graph.indices[graph.indptr[2]] = 2000;
    check_throws<std::out_of_range>([&] { static_cast<void>(sampler->sample(seeds, {}, {}, no_pool())); }, "no node");
    graph.indices[graph.indptr[2]] = before;
    check_equal(sampler->sample(seeds, {}, {}, no_pool()), expected, "sampling works after errors");
    for (const std::string& name : engine_names()) {
      const auto engine =
          make_engine(name, 16, injector_with({{.kind = FaultKind::io_error, .counted = Counted::reads, .nth = 1}}));
      GraphOnDisk<std::uint32_t> on_disk(graph, folder.file("indices"), *engine, [](auto) { return false; });
      const auto cached = make_importance_sampler(on_disk.topology(graph), {3}, {.method = method});
      check_throws<IoError>([&] { static_cast<void>(cached->sample(seeds, {}, {}, no_pool())); }, "a read fails");
      check_equal(cached->sample(seeds, {}, {}, no_pool()), expected, "sampling works after errors");
    }
  }
}

void test_options_that_cannot_be_are_refused() {
  const auto graph = make_graph<std::uint32_t>(100, 5);
  const auto refused = [&](std::vector<std::int64_t> fanouts, const ImportanceOptions& options, const char* what) {
    check_throws<std::invalid_argument>(
        [&] { static_cast<void>(make_importance_sampler(graph.topology(), fanouts, options)); }, what);
  };
  refused({0}, {}, "a fan-out of 0");
  refused({5}, {.batch_dependency = 0}, "a dependency of no batch");
  const auto sampler = make_importance_sampler(graph.topology(), {2}, {});
  const std::vector<std::int64_t> twice{1, 1};
  check_throws<std::invalid_argument>([&] { static_cast<void>(sampler->sample(twice, {}, {}, no_pool())); },
                                      "repeated");
}

}  // namespace

int main() {
  test_a_limit_of_draws_is_their_fraction();
  test_a_scale_makes_the_sum();
  test_lists_on_the_disk_give_the_same_batches<std::uint32_t>();
  test_lists_on_the_disk_give_the_same_batches<std::int64_t>();
  test_long_lists_keep_their_share();
  test_damaged_lists_and_failed_reads_leave_the_sampler_usable();
  test_options_that_cannot_be_are_refused();
}
