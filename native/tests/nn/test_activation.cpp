// ReLU with dropout: its values, draws and gradient, with the same bits for any threads and instruction sets.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "diskhop/nn/activation.hpp"
#include "values.hpp"

using diskhop::absorb;
using diskhop::Bfloat16;
using diskhop::draw32;
using diskhop::Dropout;
using diskhop::InstructionSet;
using diskhop::rectify;
using diskhop::rectify_backward;
using diskhop::supported_instruction_sets;
using diskhop::testing::check;
using diskhop::testing::check_throws;
using diskhop::testing::same_bits;

namespace {

std::vector<float> some_values(std::size_t num_values) {
  std::mt19937 random(1);
  std::vector<float> values(num_values);
  for (float& value : values) value = std::normal_distribution<float>()(random);
  for (std::size_t at = 0; at + 3 < num_values; at += 97) {
    values[at] = 0.0F;
    values[at + 1] = -0.0F;
    values[at + 2] = -INFINITY;
  }
  return values;
}

void values_and_gradients_are_as_defined() {
  for (const std::size_t num_values : {1, 15, 4096, 200'001}) {
    for (const float probability : {0.0F, 0.3F, 0.5F}) {
      const Dropout dropout{.probability = probability, .seed = 0x123456789abcdef0};
      const std::vector<float> before = some_values(num_values);
      std::vector<float> grad(num_values);
      std::vector<float> expected(num_values);
      std::vector<float> expected_gradient(num_values);
      const float scale = 1.0F / (1.0F - probability);
      for (std::size_t at = 0; at < num_values; ++at) {
        grad[at] = static_cast<float>(at % 7) - 3.0F;
        const std::uint32_t drawn = draw32(absorb(dropout.seed, at / 4096), static_cast<std::uint32_t>(at % 4096));
        const bool is_kept = drawn >= static_cast<double>(probability) * 0x1p32;
        expected[at] = before[at] > 0 && is_kept ? before[at] * scale : 0.0F;
        expected_gradient[at] = expected[at] != 0 ? grad[at] * scale : 0.0F;
      }
      for (const InstructionSet instructions : supported_instruction_sets()) {
        for (const unsigned num_threads : {0U, 1U, 3U}) {
          std::vector<float> values = before;
          rectify<float>(values, dropout, num_threads, instructions);
          check(same_bits(values, expected), "values of " + std::to_string(num_values));
          std::vector<float> gradient(num_values, NAN);
          rectify_backward<float>(values, grad, dropout, gradient, num_threads, instructions);
          check(same_bits(gradient, expected_gradient), "gradients of " + std::to_string(num_values));
        }
      }
    }
  }
}

void bfloat16_is_rectified_alike() {
  // 1, -1, NaN, infinity, -0
  const std::vector<std::uint16_t> before{0x3f80, 0xbf80, 0x7fc0, 0x7f80, 0x8000};
  const std::vector<std::uint16_t> expected{0x3f80, 0, 0x7fc0, 0x7f80, 0};
  for (const InstructionSet instructions : supported_instruction_sets()) {
    std::vector<Bfloat16> values;
    for (const std::uint16_t bits : before) values.push_back({bits});
    rectify<Bfloat16>(values, {}, 1, instructions);
    std::vector<Bfloat16> gradient(values.size());
    const std::vector<Bfloat16> grad(values.size(), {0x4000});
    rectify_backward<Bfloat16>(values, grad, {}, gradient, 1, instructions);
    for (std::size_t at = 0; at < values.size(); ++at) {
      check(values[at].bits == expected[at], "value " + std::to_string(at));
      check(gradient[at].bits == (expected[at] == 0 ? 0 : 0x4000), "gradient " + std::to_string(at));
    }
  }
}

void dropout_takes_its_share_whatever_the_seed() {
  for (const std::uint64_t seed : {0ULL, 1ULL, ~0ULL}) {
    std::vector<float> values(1'000'000, 1.0F);
    rectify<float>(values, {.probability = 0.25F, .seed = seed}, 2);
    std::size_t num_kept = 0;
    for (const float value : values) num_kept += value != 0 ? 1 : 0;
    // Five standard deviations of a binomial.
    check(std::abs(static_cast<double>(num_kept) - 750'000) < 5 * 433, "kept " + std::to_string(num_kept));
  }
}

void nan_stays_nan() {
  std::vector<float> values(4096, static_cast<float>(NAN));
  rectify<float>(values, {.probability = 0.5F, .seed = 1}, 1);
  check(std::all_of(values.begin(), values.end(), [](float value) { return std::isnan(value); }),
        "dropout hides no run that diverges");
}

void invalid_arguments_are_refused() {
  std::vector<float> values(4);
  for (const float probability : {-0.1F, 1.0F, static_cast<float>(NAN)}) {
    check_throws<std::invalid_argument>([&] { rectify<float>(values, {.probability = probability}, 1); },
                                        "a probability");
  }
  std::vector<float> fewer(3);
  check_throws<std::invalid_argument>([&] { rectify_backward<float>(values, fewer, {}, values, 1); },
                                      "fewer gradients");
}

}  // namespace

int main() {
  values_and_gradients_are_as_defined();
  bfloat16_is_rectified_alike();
  dropout_takes_its_share_whatever_the_seed();
  nan_stays_nan();
  invalid_arguments_are_refused();
}
