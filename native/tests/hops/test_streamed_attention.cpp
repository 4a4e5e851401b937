// Attention over streamed lists: it equals the softmax in double, in the same bits for any division into calls, threads
// and instructions.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/hops/streamed_attention.hpp"
#include "hops.hpp"
#include "streamed.hpp"

using namespace diskhop;
using namespace diskhop::testing;

namespace {

constexpr float slope = 0.2F;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::uint64_t num_sources = 3000;

/// Lists with scores, and a block: scores of all heads, then the columns of one head after the other.
struct Attention {
  Attention(const std::vector<std::int64_t>& lengths, std::size_t heads, std::size_t columns)
      : num_heads(heads),
        num_columns(columns),
        first_column((heads + 3) / 4 * 4),
        lists(lengths, num_sources, 3),
        rows(num_sources, (first_column + (heads - 1) * columns + 3) / 4 * 4 + (columns + 3) / 4 * 4, 5),
        source_scores(num_sources * heads),
        target_scores(lengths.size() * heads) {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal(0, 3);
    for (float& score : target_scores) score = normal(random);
    for (std::size_t source = 0; source < num_sources; ++source) {
      for (std::size_t head = 0; head < heads; ++head) set_source_score(source, head, normal(random));
    }
  }

  void set_source_score(std::size_t source, std::size_t head, float score) {
    source_scores[source * num_heads + head] = score;
    rows.block.row(source)[head] = score;
  }

  [[nodiscard]] double score(std::int64_t edge, std::size_t row, std::size_t head) const {
    const double sum = static_cast<double>(source_scores[source(edge) * num_heads + head]) +
                       static_cast<double>(target_scores[row * num_heads + head]);
    return sum > 0 ? sum : static_cast<double>(slope) * sum;
  }
  [[nodiscard]] double value(std::int64_t edge, std::size_t head, std::size_t column) const {
    return rows.block.row(source(edge))[first_column + head * num_columns + column];
  }
  [[nodiscard]] std::size_t source(std::int64_t edge) const { return lists.indices[static_cast<std::size_t>(edge)]; }

  [[nodiscard]] std::vector<AttendedHead> heads() const {
    std::vector<AttendedHead> all;
    for (std::size_t head = 0; head < num_heads; ++head) {
      all.push_back({.head = head,
                     .score_column = head,
                     .first_column = first_column + head * num_columns,
                     .num_columns = num_columns,
                     .out_column = head * num_columns});
    }
    return all;
  }

  std::size_t num_heads;
  std::size_t num_columns;
  std::size_t first_column;
  Lists lists;
  Rows rows;
  std::vector<float> source_scores;
  std::vector<float> target_scores;
};

struct Result {
  std::vector<float> norms;
  std::vector<float> sums;
};

Result attend(const Attention& attention, const Division& division) {
  const Lists& lists = attention.lists;
  const std::size_t heads = attention.num_heads;
  const std::size_t norm_stride = 2 * heads + 1;
  const std::size_t stride = heads * attention.num_columns + 2;
  std::vector<float> norms(lists.num_rows() * norm_stride);
  for (std::size_t row = 0; row < lists.num_rows(); ++row) std::fill_n(&norms[row * norm_stride], heads, -infinity);
  std::vector<float> sums(lists.num_rows() * stride);
  const auto norms_of = [&](const StreamedLists& part, std::size_t first_row) {
    return Matrix<float>{norms.data() + first_row * norm_stride, part.num_rows(), 2 * heads, norm_stride};
  };
  const auto scores_of = [&](const StreamedLists& part, std::size_t first_row) {
    return Matrix<const float>{attention.target_scores.data() + first_row * heads, part.num_rows(), heads, heads};
  };
  for_each_call(lists, division, [&](const StreamedLists& part, std::size_t first_row) {
    add_attention_norms(part, {attention.source_scores.data(), num_sources, heads, heads}, scores_of(part, first_row),
                        slope, norms_of(part, first_row), division.num_threads, division.instructions);
  });
  PrefetchDistance ahead;
  for_each_call(lists, division, [&](const StreamedLists& part, std::size_t first_row) {
    const Matrix<float> of_rows = norms_of(part, first_row);
    const AttentionTargets targets{
        scores_of(part, first_row), {of_rows.data, of_rows.num_rows, of_rows.num_columns, norm_stride}, slope};
    const Matrix<float> out{sums.data() + first_row * stride, part.num_rows(), heads * attention.num_columns, stride};
    add_attended_rows(part, attention.rows.block, attention.heads(), targets, out, division.num_threads, ahead,
                      division.instructions);
  });
  return {without_padding(norms, 2 * heads, norm_stride), without_padding(sums, heads * attention.num_columns, stride)};
}

void check_row(const Attention& attention, const Result& result, std::size_t row) {
  const std::size_t heads = attention.num_heads;
  const std::int64_t begin = attention.lists.indptr[row];
  const std::int64_t end = attention.lists.indptr[row + 1];
  for (std::size_t head = 0; head < heads; ++head) {
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t edge = begin; edge < end; ++edge) largest = std::max(largest, attention.score(edge, row, head));
    double sum = 0;
    std::vector<double> values(attention.num_columns);
    for (std::int64_t edge = begin; edge < end; ++edge) {
      const double exponential = std::exp(attention.score(edge, row, head) - largest);
      sum += exponential;
      for (std::size_t column = 0; column < values.size(); ++column) {
        values[column] += exponential * attention.value(edge, head, column);
      }
    }
    const auto found_largest = static_cast<double>(result.norms[row * 2 * heads + head]);
    check(begin == end ? found_largest == largest : std::abs(found_largest - largest) < 1e-5, "the largest score");
    const auto found_sum = static_cast<double>(result.norms[row * 2 * heads + heads + head]);
    check(std::abs(found_sum - sum) <= 1e-5 * sum, "the sum of exponentials");
    for (std::size_t column = 0; column < values.size(); ++column) {
      const auto found = static_cast<double>(result.sums[(row * heads + head) * attention.num_columns + column]);
      check(begin == end ? found == 0 : std::abs(found - values[column] / sum) < 1e-4, "the attended sum");
    }
  }
}

void test_attention_has_the_same_bits_in_all_ways() {
  for (const auto& [num_heads, num_columns] :
       std::vector<std::array<std::size_t, 2>>{{1, 16}, {2, 5}, {3, 1}, {4, 2}, {5, 4}, {9, 3}, {1, 70}}) {
    const Attention attention(hub_lengths(), num_heads, num_columns);
    const Result expected = attend(attention, {});
    for (std::size_t row = 0; row < attention.lists.num_rows(); ++row) check_row(attention, expected, row);
    for (const Division& division : divisions()) {
      const Result result = attend(attention, division);
      check(result.norms == expected.norms && result.sums == expected.sums, "same bits");
    }
  }
}

void test_bad_values_reach_their_rows() {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    for (const bool is_score : {false, true}) {
      Attention attention(hub_lengths(), 2, 3);
      if (is_score) {
        attention.set_source_score(7, 1, bad);
      } else {
        attention.rows.block.row(7)[attention.first_column + 3] = bad;
      }
      const Result result = attend(attention, {.num_threads = 3});
      for (std::size_t row = 0; row < attention.lists.num_rows(); ++row) {
        const auto* const list = attention.lists.indices.data();
        const auto* const end = list + attention.lists.indptr[row + 1];
        const bool has_bad = std::find(list + attention.lists.indptr[row], end, 7U) != end;
        const bool has_others = attention.lists.indptr[row + 1] - attention.lists.indptr[row] > 1;
        // A score of -infinity only means no attention, if there are others.
        const bool is_bad = has_bad && !(is_score && bad == -infinity && has_others);
        check(std::isfinite(result.sums[row * 6 + 3]) != is_bad, "the head's sums are bad");
        check(std::isfinite(result.sums[row * 6]), "the other head's are not");
      }
    }
  }
}

void test_damaged_lists_are_refused() {
  Attention attention(hub_lengths(), 2, 3);
  attention.lists.indices[100'000] = num_sources;
  for (const Division& division : divisions()) {
    check_throws<DamagedListsError>([&] { static_cast<void>(attend(attention, division)); }, "damaged lists");
  }
}

void test_sizes_that_do_not_match_are_refused() {
  const Attention attention({3, 4}, 2, 3);
  const StreamedLists lists = attention.lists.part(0, 2, 0, 7);
  const Matrix<const float> of_sources{attention.source_scores.data(), num_sources, 2, 2};
  const Matrix<const float> of_targets{attention.target_scores.data(), 2, 2, 2};
  std::vector<float> norms(8);
  std::vector<float> sums(12);
  const auto norms_refused = [&](const Matrix<const float>& scores, const Matrix<float>& to) {
    check_throws<std::invalid_argument>([&] { add_attention_norms(lists, of_sources, scores, slope, to, 1); },
                                        "refused");
  };
  norms_refused({of_targets.data, 1, 2, 2}, {norms.data(), 2, 4, 4});
  norms_refused({of_targets.data, 2, 1, 2}, {norms.data(), 2, 4, 4});
  norms_refused(of_targets, {norms.data(), 1, 4, 4});
  norms_refused(of_targets, {norms.data(), 2, 2, 4});
  norms_refused(of_targets, {norms.data(), 2, 4, 3});

  const AttentionTargets targets{of_targets, {norms.data(), 2, 4, 4}, slope};
  PrefetchDistance ahead;
  const auto refused = [&](const AttendedHead& head, const AttentionTargets& of_rows, const Matrix<float>& out) {
    const std::vector<AttendedHead> heads{head};
    check_throws<std::invalid_argument>(
        [&] { add_attended_rows(lists, attention.rows.block, heads, of_rows, out, 1, ahead); }, "refused");
  };
  const Matrix<float> out{sums.data(), 2, 6, 6};
  const AttendedHead head = attention.heads()[1];
  const auto changed = [&](std::size_t AttendedHead::* member, std::size_t value) {
    AttendedHead other = head;
    other.*member = value;
    return other;
  };
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  refused(changed(&AttendedHead::head, 2), targets, out);
  refused(changed(&AttendedHead::score_column, attention.rows.num_columns), targets, out);
  refused(changed(&AttendedHead::first_column, attention.rows.num_columns - 3), targets, out);
  refused(changed(&AttendedHead::num_columns, most), targets, out);
  refused(changed(&AttendedHead::out_column, 4), targets, out);
  refused(head, targets, {sums.data(), 1, 6, 6});
  refused(head, targets, {sums.data(), 2, 6, 5});
  refused(head, {of_targets, {norms.data(), 2, 3, 4}, slope}, out);
  refused(head, {{of_targets.data, 1, 2, 2}, {norms.data(), 2, 4, 4}, slope}, out);
}

}  // namespace

int main() {
  test_attention_has_the_same_bits_in_all_ways();
  test_bad_values_reach_their_rows();
  test_damaged_lists_are_refused();
  test_sizes_that_do_not_match_are_refused();
}
