#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "diskhop/base/random.hpp"
#include "sampling/picks.hpp"

using namespace diskhop;
using diskhop::testing::check;
using diskhop::testing::check_throws;

namespace {

void test_logarithms_are_right_to_a_few_units() {
  const auto check_one = [](std::uint64_t draw) {
    const double fraction = (static_cast<double>(draw >> 12) + 0.5) * 0x1p-52;
    const double expected = -std::log(fraction);
    check(std::abs(negative_log(draw) - expected) <= 4e-16 * expected, "-log of " + std::to_string(fraction));
    check(negative_log(draw) > 0, "no key is 0");
  };
  for (std::uint64_t counter = 0; counter < 100'000; ++counter) check_one(draw64(3, counter));
  for (unsigned bit = 0; bit < 64; ++bit) {
    check_one(std::uint64_t{1} << bit);
    check_one(~(std::uint64_t{1} << bit));
    check_one((std::uint64_t{1} << bit) - 1);
  }
  check_one(0);
  check_one(std::numeric_limits<std::uint64_t>::max());
}

void test_fixed_values_are_those_of_every_machine() {
  check(negative_log(0) == 0x1.25e4f7b2737fap+5, "-log of the least");
  check(negative_log(~std::uint64_t{0}) == 0x1p-53, "-log of the most");
  check(negative_log(std::uint64_t{1} << 63) == 0x1.62e42fefa39edp-1, "-log of a half");
}

void test_picks_are_distinct_and_have_weights() {
  ListPicker picker;
  for (std::uint64_t key = 0; key < 200; ++key) {
    std::vector<double> weights(key);
    std::uint64_t num_drawable = 0;
    for (std::uint64_t offset = 0; offset < key; ++offset) {
      weights[offset] = static_cast<double>(draw64(key, offset) % 4);
      num_drawable += weights[offset] > 0 ? 1 : 0;
    }
    for (const std::uint64_t count : {1, 5, 20, 1000}) {
      std::vector<std::uint64_t> offsets;
      picker.pick_weighted(weights, count, key, offsets);
      check(offsets.size() == std::min(count, num_drawable), "as many as there are");
      for (const std::uint64_t offset : offsets) check(weights[offset] > 0, "an edge of weight 0 is not drawn");
      // A smaller draw is the beginning of a larger one, unless that has all edges, in their order.
      std::vector<std::uint64_t> more;
      picker.pick_weighted(weights, count + 1, key, more);
      if (num_drawable > count + 1) check(std::equal(offsets.begin(), offsets.end(), more.begin()), "one more draw");
      std::ranges::sort(offsets);
      check(std::ranges::adjacent_find(offsets) == offsets.end(), "no edge is drawn twice");
    }
  }
}

void test_draws_again_stay_in_the_list() {
  ListPicker picker;
  std::vector<std::uint64_t> offsets(1000);
  for (const std::uint64_t degree :
       {std::uint64_t{1}, std::uint64_t{7}, wide_draw_degree - 1, std::uint64_t{1} << 40}) {
    ListPicker::draw_again(degree, offsets.size(), 5, offsets.data());
    check(std::ranges::max(offsets) < degree, "within the list");
    check(degree == 1 || std::ranges::max(offsets) > degree / 2, "of its whole length");
  }
  offsets.clear();
  const std::vector<double> weights{0, 1, 0, 2, 0};
  picker.draw_weighted_again(weights, 1000, 5, offsets);
  check(offsets.size() == 1000, "as many as are asked for");
  for (const std::uint64_t offset : offsets) check(weights[offset] > 0, "an edge of weight 0 is not drawn");
  offsets.clear();
  picker.draw_weighted_again(std::vector<double>{0, 0}, 1000, 5, offsets);
  check(offsets.empty(), "nothing can be drawn");
  const double most = std::numeric_limits<double>::max();
  check_throws<std::domain_error>([&] { picker.draw_weighted_again(std::vector<double>{most, most}, 1, 5, offsets); },
                                  "a sum that is not finite");
}

void test_times_choose_by_time_and_then_by_place() {
  ListPicker picker;
  const std::vector<std::int64_t> times{5, 1, 3, 3, 9, 3};
  std::vector<std::uint64_t> offsets;
  ListPicker::pick_until(times, 5, offsets);
  check(offsets == std::vector<std::uint64_t>{0, 1, 2, 3, 5}, "not later than the limit");
  picker.keep_latest(times, 3, offsets);
  check(offsets == std::vector<std::uint64_t>{3, 5, 0}, "the latest, ascending");
  picker.keep_latest(times, 10, offsets);
  check(offsets == std::vector<std::uint64_t>{3, 5, 0}, "all if there are no more");
}

}  // namespace

int main() {
  test_logarithms_are_right_to_a_few_units();
  test_fixed_values_are_those_of_every_machine();
  test_picks_are_distinct_and_have_weights();
  test_draws_again_stay_in_the_list();
  test_times_choose_by_time_and_then_by_place();
}
