// Sums over neighbour lists: their values, with the same bits for any threads and instruction sets, and refused
// arguments.
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/nn/aggregate.hpp"

using diskhop::aggregate;
using diskhop::aggregate_backward;
using diskhop::Bfloat16;
using diskhop::BufferPool;
using diskhop::Float16;
using diskhop::InstructionSet;
using diskhop::Matrix;
using diskhop::NeighborSums;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

BufferPool scratch(std::size_t{16} << 20);

/// Lists with an empty one, a hub, parallel edges and self-loops.
struct Lists {
  std::vector<std::int32_t> indptr{0};
  std::vector<std::int32_t> sources;
  std::vector<float> edge_weights;
  std::vector<float> self_weights;
  std::size_t num_rows;

  Lists(std::size_t num_targets, std::size_t rows, std::mt19937& random) : num_rows(rows) {
    for (std::size_t target = 0; target < num_targets; ++target) {
      const std::size_t degree = target == 1 ? 300 : random() % 5;
      for (std::size_t edge = 0; edge < degree; ++edge) {
        sources.push_back(static_cast<std::int32_t>(random() % num_rows));
        edge_weights.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
      }
      indptr.push_back(static_cast<std::int32_t>(sources.size()));
      self_weights.push_back(std::uniform_real_distribution<float>(-1, 1)(random));
    }
  }

  [[nodiscard]] NeighborSums mean() const {
    return {.indptr = indptr, .sources = sources, .edge_weights = {}, .self_weights = {}, .is_mean = true};
  }
  [[nodiscard]] NeighborSums weighted() const {
    return {.indptr = indptr, .sources = sources, .edge_weights = edge_weights, .self_weights = self_weights};
  }
};

float as_float(float value) { return value; }
float as_float(Bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
float as_float(Float16 value) {
  const int exponent = (value.bits >> 10) & 31;
  const int fraction = value.bits & 1023;
  const float sign = value.bits >> 15 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

void round_to(float value, float& to) { to = value; }
void round_to(float value, Bfloat16& to) {
  if (std::isnan(value)) {
    to.bits = 0x7fc0;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto below = static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t rest = bits & 0xffff;
  to.bits = static_cast<std::uint16_t>(below + (rest > 0x8000 || (rest == 0x8000 && (below & 1) != 0) ? 1 : 0));
}

bool same(float first, float second) {
  return std::bit_cast<std::uint32_t>(first) == std::bit_cast<std::uint32_t>(second);
}
bool same(Bfloat16 first, Bfloat16 second) { return first.bits == second.bits; }

/// Rows that are further apart than they are long.
template <typename Value>
struct Rows {
  std::size_t num_rows;
  std::size_t num_columns;
  std::size_t stride;
  std::vector<Value> values;

  Rows(std::size_t rows, std::size_t columns)
      : num_rows(rows), num_columns(columns), stride(columns + 3), values(rows * stride) {}
  void fill(std::mt19937& random) {
    for (Value& value : values) round_to(std::normal_distribution<float>()(random), value);
  }
  [[nodiscard]] Matrix<const Value> view() const { return {values.data(), num_rows, num_columns, stride}; }
  [[nodiscard]] Matrix<Value> writable() { return {values.data(), num_rows, num_columns, stride}; }
  [[nodiscard]] float at(std::size_t row, std::size_t column) const { return as_float(values[row * stride + column]); }
  Value& to(std::size_t row, std::size_t column) { return values[row * stride + column]; }
};

/// One element after the other, as the header defines it.
template <typename In, typename Out>
Rows<Out> expected_sums(const NeighborSums& sums, const Rows<In>& x, std::size_t num_columns) {
  Rows<Out> out(sums.num_targets(), num_columns);
  for (std::size_t target = 0; target < sums.num_targets(); ++target) {
    for (std::size_t column = 0; column < num_columns; ++column) {
      if (column >= x.num_columns) {
        round_to(x.at(target, column - x.num_columns), out.to(target, column));
        continue;
      }
      float sum = 0;
      for (auto edge = sums.indptr[target]; edge < sums.indptr[target + 1]; ++edge) {
        const float value = x.at(static_cast<std::size_t>(sums.sources[edge]), column);
        sum += sums.edge_weights.empty() ? value : value * sums.edge_weights[edge];
      }
      const auto degree = sums.indptr[target + 1] - sums.indptr[target];
      if (sums.is_mean && degree > 0) sum /= static_cast<float>(degree);
      if (!sums.self_weights.empty()) sum += x.at(target, column) * sums.self_weights[target];
      round_to(sum, out.to(target, column));
    }
  }
  return out;
}

template <typename Value>
Rows<Value> expected_gradient(const NeighborSums& sums, const Rows<Value>& grad, std::size_t num_rows,
                              std::size_t num_columns) {
  Rows<Value> out(num_rows, num_columns);
  for (std::size_t column = 0; column < num_columns; ++column) {
    std::vector<float> sum(num_rows);
    for (std::size_t target = 0; target < sums.num_targets(); ++target) {
      if (grad.num_columns > num_columns) sum[target] += grad.at(target, num_columns + column);
      if (!sums.self_weights.empty()) sum[target] += grad.at(target, column) * sums.self_weights[target];
    }
    for (std::size_t target = 0; target < sums.num_targets(); ++target) {
      const auto degree = sums.indptr[target + 1] - sums.indptr[target];
      const float share = sums.is_mean ? 1.0F / static_cast<float>(degree) : 1.0F;
      for (auto edge = sums.indptr[target]; edge < sums.indptr[target + 1]; ++edge) {
        const float weight = sums.edge_weights.empty() ? share : share * sums.edge_weights[edge];
        sum[static_cast<std::size_t>(sums.sources[edge])] += grad.at(target, column) * weight;
      }
    }
    for (std::size_t row = 0; row < num_rows; ++row) round_to(sum[row], out.to(row, column));
  }
  return out;
}

template <typename Value>
void check_same(const Rows<Value>& found, const Rows<Value>& expected, const std::string& claim) {
  for (std::size_t row = 0; row < expected.num_rows; ++row) {
    for (std::size_t column = 0; column < expected.stride; ++column) {
      check(same(found.values[row * expected.stride + column], expected.values[row * expected.stride + column]),
            claim + ", row " + std::to_string(row) + ", column " + std::to_string(column) + " of " +
                std::to_string(expected.num_columns));
    }
  }
}

template <typename In, typename Out>
void sums_have_the_bits_of_their_definition(const std::string& formats) {
  std::mt19937 random(1);
  // Each width has another mix of vectors and rest; enough targets that several threads have turns.
  for (const std::size_t num_columns : {1, 16, 37, 128, 200, 256}) {
    const Lists lists(700, 1000, random);
    Rows<In> x(lists.num_rows, num_columns);
    x.fill(random);
    for (const bool is_mean : {true, false}) {
      const NeighborSums sums = is_mean ? lists.mean() : lists.weighted();
      const std::size_t out_columns = is_mean ? 2 * num_columns : num_columns;
      const auto expected = expected_sums<In, Out>(sums, x, out_columns);
      for (const InstructionSet instructions : supported_instruction_sets()) {
        for (const unsigned num_threads : {1U, 3U}) {
          Rows<Out> out(sums.num_targets(), out_columns);
          aggregate(sums, x.view(), out.writable(), num_threads, instructions);
          check_same(out, expected, "sums " + formats + ", set " + std::to_string(static_cast<int>(instructions)));
        }
      }
    }
  }
}

template <typename Value>
void gradients_have_the_bits_of_their_definition(const std::string& format) {
  std::mt19937 random(2);
  for (const std::size_t num_columns : {1, 16, 37, 128, 200}) {
    const Lists lists(700, 1000, random);
    for (const bool is_mean : {true, false}) {
      const NeighborSums sums = is_mean ? lists.mean() : lists.weighted();
      Rows<Value> grad(sums.num_targets(), is_mean ? 2 * num_columns : num_columns);
      grad.fill(random);
      const auto expected = expected_gradient(sums, grad, lists.num_rows, num_columns);
      for (const InstructionSet instructions : supported_instruction_sets()) {
        for (const unsigned num_threads : {1U, 3U}) {
          Rows<Value> out(lists.num_rows, num_columns);
          aggregate_backward(sums, grad.view(), out.writable(), scratch, num_threads, false, instructions);
          check_same(out, expected, "gradient " + format + ", set " + std::to_string(static_cast<int>(instructions)));
        }
      }
    }
  }
}

void gradients_add_to_others() {
  std::mt19937 random(4);
  const Lists lists(50, 80, random);
  Rows<float> grad(50, 37);
  grad.fill(random);
  Rows<float> once(80, 37);
  aggregate_backward(lists.mean(), grad.view(), once.writable(), scratch, 2);
  Rows<float> twice = once;
  aggregate_backward(lists.mean(), grad.view(), twice.writable(), scratch, 2, true);
  for (std::size_t row = 0; row < 80; ++row) {
    for (std::size_t column = 0; column < 37; ++column) {
      const float one = once.at(row, column);
      check(std::abs(twice.at(row, column) - 2 * one) <= 1e-5F * (1 + std::abs(one)), "a gradient added to itself");
    }
  }
}

void targets_that_are_no_rows() {
  const std::vector<std::int32_t> indptr{0, 1, 1, 3};
  const std::vector<std::int32_t> sources{0, 0, 0};
  const NeighborSums sums{.indptr = indptr, .sources = sources, .edge_weights = {}, .self_weights = {}};
  Rows<float> x(1, 2);
  x.to(0, 0) = 3;
  Rows<float> out(3, 2);
  aggregate(sums, x.view(), out.writable(), 1);
  check(out.at(0, 0) == 3 && out.at(1, 0) == 0 && out.at(2, 0) == 6, "sums of one row for three targets");
  Rows<float> wide(3, 4);
  check_throws<std::invalid_argument>([&] { aggregate(sums, x.view(), wide.writable(), 1); }, "own rows outside x");
}

void every_value_of_16_bits_is_read_exactly() {
  const std::vector<std::int32_t> indptr{0};
  const NeighborSums none{.indptr = indptr, .sources = {}, .edge_weights = {}, .self_weights = {}};
  const auto read_all = [&]<typename Value>(Value) {
    // One target without edges: its own row is on the right.
    const std::vector<std::int32_t> one{0, 0};
    const NeighborSums sums{.indptr = one, .sources = {}, .edge_weights = {}, .self_weights = {}};
    Rows<Value> x(1, 1 << 16);
    for (std::size_t bits = 0; bits < 1 << 16; ++bits) x.to(0, bits).bits = static_cast<std::uint16_t>(bits);
    for (const InstructionSet instructions : supported_instruction_sets()) {
      Rows<float> out(1, 2 << 16);
      aggregate(sums, x.view(), out.writable(), 1, instructions);
      for (std::size_t bits = 0; bits < 1 << 16; ++bits) {
        const float expected = x.at(0, bits);
        const float found = out.at(0, bits + (1 << 16));
        check(std::isnan(expected) ? std::isnan(found) : same(expected, found), "bits " + std::to_string(bits));
      }
    }
  };
  read_all(Bfloat16{});
  read_all(Float16{});
  Rows<float> x(0, 4);
  Rows<float> out(0, 4);
  aggregate(none, x.view(), out.writable(), 2);
}

void rounding_to_16_bits_is_to_nearest_even() {
  const std::vector<std::int32_t> one{0, 0};
  const NeighborSums sums{.indptr = one, .sources = {}, .edge_weights = {}, .self_weights = {}};
  const std::vector<float> values{1.00390625F, 1.01171875F, 1.00390637F, -1.00390625F, 3.4e38F, INFINITY, NAN, 0.0F};
  Rows<float> x(1, values.size());
  for (std::size_t column = 0; column < values.size(); ++column) x.to(0, column) = values[column];
  const auto expected = expected_sums<float, Bfloat16>(sums, x, 2 * values.size());
  for (const InstructionSet instructions : supported_instruction_sets()) {
    Rows<Bfloat16> out(1, 2 * values.size());
    aggregate(sums, x.view(), out.writable(), 1, instructions);
    check_same(out, expected, "rounded");
  }
}

void mismatched_sizes_are_refused() {
  std::mt19937 random(3);
  const Lists lists(4, 10, random);
  Rows<float> x(10, 8);
  Rows<float> out(4, 8);
  const auto run = [&](const NeighborSums& sums) { aggregate(sums, x.view(), out.writable(), 1); };
  const auto refused = [&](Lists changed, const std::string& claim) {
    check_throws<std::invalid_argument>([&] { run(changed.weighted()); }, claim);
  };
  run(lists.weighted());
  Lists changed = lists;
  changed.indptr[0] = 1;
  refused(changed, "indptr that does not start with 0");
  changed = lists;
  changed.indptr[2] = 0;
  refused(changed, "indptr that descends");
  changed = lists;
  changed.indptr.back() = static_cast<std::int32_t>(changed.sources.size()) + 1;
  refused(changed, "indptr beyond the sources");
  changed = lists;
  changed.edge_weights.pop_back();
  refused(changed, "an edge without weight");
  changed = lists;
  changed.self_weights.pop_back();
  refused(changed, "a target without weight");
  for (const std::int32_t source : {10, -1}) {
    changed = lists;
    changed.sources[3] = source;
    const auto error = check_throws<std::out_of_range>([&] { run(changed.mean()); }, "a source outside x");
    check(std::string(error.what()).find("source " + std::to_string(source)) != std::string::npos, error.what());
  }
  Rows<float> narrow(4, 7);
  check_throws<std::invalid_argument>([&] { aggregate(lists.mean(), x.view(), narrow.writable(), 1); }, "columns");
  Rows<float> few(3, 8);
  check_throws<std::invalid_argument>([&] { aggregate(lists.mean(), x.view(), few.writable(), 1); }, "rows");
  check_throws<std::invalid_argument>([&] { aggregate_backward(lists.mean(), few.view(), x.writable(), scratch, 1); },
                                      "rows");
}

}  // namespace

int main() {
  sums_have_the_bits_of_their_definition<float, float>("float");
  sums_have_the_bits_of_their_definition<Bfloat16, float>("bfloat16 to float");
  sums_have_the_bits_of_their_definition<float, Bfloat16>("float to bfloat16");
  sums_have_the_bits_of_their_definition<Bfloat16, Bfloat16>("bfloat16");
  gradients_have_the_bits_of_their_definition<float>("float");
  gradients_have_the_bits_of_their_definition<Bfloat16>("bfloat16");
  gradients_add_to_others();
  targets_that_are_no_rows();
  every_value_of_16_bits_is_read_exactly();
  rounding_to_16_bits_is_to_nearest_even();
  mismatched_sizes_are_refused();
}
