// Sums over streamed lists: the same bits for any division into calls, threads and instructions, and checked indices.
#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/streamed_lists.hpp"
#include "hops.hpp"
#include "streamed.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

/// Sums as the header defines them.
std::vector<float> expected_sums(const Lists& lists, const Rows& rows) {
  std::vector<float> sums(lists.num_rows() * rows.num_columns);
  std::vector<float> of_piece(rows.num_columns);
  std::vector<float> of_run(rows.num_columns);
  for (std::size_t row = 0; row < lists.num_rows(); ++row) {
    for_each_piece(lists, row, [&](std::int64_t begin, std::int64_t end) {
      std::fill(of_piece.begin(), of_piece.end(), 0.0F);
      for (std::int64_t run = begin; run < end; run += 128) {
        std::fill(of_run.begin(), of_run.end(), 0.0F);
        for (std::int64_t edge = run; edge < std::min(run + 128, end); ++edge) {
          const float* const from = rows.block.row(lists.indices[static_cast<std::size_t>(edge)]);
          for (std::size_t column = 0; column < rows.num_columns; ++column) of_run[column] += from[column];
        }
        for (std::size_t column = 0; column < rows.num_columns; ++column) of_piece[column] += of_run[column];
      }
      for (std::size_t column = 0; column < rows.num_columns; ++column) {
        sums[row * rows.num_columns + column] += of_piece[column];
      }
    });
  }
  return sums;
}

std::vector<float> streamed_sums(const Lists& lists, const Rows& rows, const Division& division) {
  const std::size_t stride = rows.num_columns + 3;
  // What was there before does not count.
  std::vector<float> memory(lists.num_rows() * stride, std::numeric_limits<float>::quiet_NaN());
  PrefetchDistance ahead;
  for_each_call(lists, division, [&](const StreamedLists& part, std::size_t first_row) {
    const Matrix<float> out{memory.data() + first_row * stride, part.num_rows(), rows.num_columns, stride};
    add_neighbor_sums(part, rows.block, out, division.num_threads, ahead, division.instructions);
  });
  return without_padding(memory, rows.num_columns, stride);
}

void test_sums_have_the_same_bits_in_all_ways() {
  for (const std::uint64_t num_columns : {4, 12, 20, 64, 76}) {
    const Lists lists(hub_lengths(), 3000, 3);
    const Rows rows(3000, num_columns, 5);
    const std::vector<float> expected = expected_sums(lists, rows);
    for (const Division& division : divisions()) {
      check(streamed_sums(lists, rows, division) == expected, "same bits, " + std::to_string(num_columns) + " columns");
    }
  }
}

void test_edges_of_other_rows_are_ignored() {
  const Lists lists(drawn_lengths(100, 500, 1), 50, 2);
  const Rows rows(50, 8, 5);
  const std::vector<float> expected = expected_sums(lists, rows);
  std::vector<float> sums(20 * 8);
  PrefetchDistance ahead;
  const StreamedLists part{.indptr = std::span(lists.indptr).subspan(30, 21),
                           .indices = reinterpret_cast<const std::byte*>(lists.indices.data()),
                           .num_edges = lists.indptr.back()};
  add_neighbor_sums(part, rows.block, {sums.data(), 20, 8, 8}, 2, ahead);
  check(std::equal(sums.begin(), sums.end(), expected.begin() + 30 * 8), "sums of the rows in between");
}

void test_rows_without_edges_are_zeros_where_they_lie_in_memory() {
  // Edges 7 and 8, and empty rows before, between and behind them.
  const std::vector<std::int64_t> indptr{6, 6, 7, 7, 8, 8, 9, 9, 10, 10};
  const std::vector<std::uint32_t> indices{3, 5};
  const Rows rows(10, 4, 1);
  std::vector<float> sums(9 * 4, 2.0F);
  PrefetchDistance ahead;
  const StreamedLists part{
      .indptr = indptr, .indices = reinterpret_cast<const std::byte*>(indices.data()), .first_edge = 7, .num_edges = 2};
  add_neighbor_sums(part, rows.block, {sums.data(), 9, 4, 4}, 3, ahead);
  const std::vector<float> expected{2, 2, 0, rows.block.row(3)[0], 0, rows.block.row(5)[0], 0, 2, 2};
  for (std::size_t row = 0; row < 9; ++row) check(sums[4 * row] == expected[row], "row " + std::to_string(row));

  const std::vector<std::int64_t> empty(5000, 7);
  std::vector<float> zeros(4999 * 4, -0.0F);
  add_neighbor_sums({.indptr = empty, .first_edge = 7}, rows.block, {zeros.data(), 4999, 4, 4}, 3, ahead);
  check(std::none_of(zeros.begin(), zeros.end(), [](float sum) { return std::signbit(sum); }), "zeros without a sign");
  add_neighbor_sums({.indptr = std::span(empty).first(1)}, rows.block, {zeros.data(), 0, 4, 4}, 3, ahead);
}

void test_damaged_lists_are_refused() {
  Lists lists(hub_lengths(), 3000, 3);
  const Rows rows(3000, 8, 5);
  const auto refused = [&](const std::string& names) {
    for (const Division& division : divisions()) {
      const auto error = check_throws<DamagedListsError>(
          [&] { static_cast<void>(streamed_sums(lists, rows, division)); }, "damaged lists");
      check(std::string(error.what()).find(names) != std::string::npos, error.what());
    }
  };
  for (const std::size_t edge : {std::size_t{0}, std::size_t{100'000}, lists.indices.size() - 1}) {
    const std::uint32_t index = std::exchange(lists.indices[edge], 3000);
    refused("comes from node 3000, must be less than 3000");
    lists.indices[edge] = std::numeric_limits<std::uint32_t>::max();
    refused("comes from node");
    lists.indices[edge] = index;
  }
  lists.indptr[4001] += 100'000;
  refused("do not follow each other");
}

void test_sizes_that_do_not_match_are_refused() {
  const Lists lists({3, 4}, 10, 3);
  const Rows rows(10, 8, 5);
  std::vector<float> sums(100);
  PrefetchDistance ahead;
  const StreamedLists whole = lists.part(0, 2, 0, 7);
  const auto refused = [&](const StreamedLists& part, const Matrix<float>& out) {
    check_throws<std::invalid_argument>([&] { add_neighbor_sums(part, rows.block, out, 1, ahead); }, "refused");
  };
  refused(whole, {sums.data(), 1, 8, 8});
  refused(whole, {sums.data(), 2, 4, 8});
  refused(whole, {sums.data(), 2, 8, 7});
  refused({}, {sums.data(), 2, 8, 8});
  StreamedLists wrong = whole;
  wrong.first_edge = -1;
  refused(wrong, {sums.data(), 2, 8, 8});
  wrong.first_edge = (std::int64_t{1} << 62) + 1 - wrong.num_edges;
  refused(wrong, {sums.data(), 2, 8, 8});
  wrong = whole;
  wrong.index_bytes = 2;
  refused(wrong, {sums.data(), 2, 8, 8});
}

}  // namespace

int main() {
  test_sums_have_the_same_bits_in_all_ways();
  test_edges_of_other_rows_are_ignored();
  test_rows_without_edges_are_zeros_where_they_lie_in_memory();
  test_damaged_lists_are_refused();
  test_sizes_that_do_not_match_are_refused();
}
