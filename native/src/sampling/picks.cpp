#include "sampling/picks.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <tuple>

#include "diskhop/base/random.hpp"
#include "sampling/node_draws.hpp"

namespace diskhop {
namespace {

/// Maps a draw of 64 bits to a number between 0 and 1, both excluded.
double uniform(std::uint64_t draw) { return as_fraction(draw >> draw_shift); }

}  // namespace

double negative_log(std::uint64_t draw) {
  const auto bits = std::bit_cast<std::uint64_t>(uniform(draw));
  auto exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  // log(m) = 2 artanh(s) = 2 (s + s^3 / 3 + s^5 / 5 + ...); the next term is below 2^-57 of the first.
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int odd = 23; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * square;
  return -(exponent * 0.69314718055994530942 + 2 * (s + s * series));
}

void ListPicker::draw_again(std::uint64_t degree, std::uint64_t count, std::uint64_t node_key, std::uint64_t* offsets) {
  for (std::uint64_t number = 0; number < count; ++number) {
    offsets[number] = degree < wide_draw_degree ? scale32(draw32(node_key, static_cast<std::uint32_t>(number)),
                                                          static_cast<std::uint32_t>(degree))
                                                : scale64(draw64(node_key, number), degree);
  }
}

void ListPicker::pick_weighted(std::span<const double> weights, std::uint64_t count, std::uint64_t node_key,
                               std::vector<std::uint64_t>& offsets) {
  const auto num_drawable =
      static_cast<std::uint64_t>(std::ranges::count_if(weights, [](double weight) { return weight > 0; }));
  if (num_drawable <= count) {
    for (std::uint64_t offset = 0; offset < weights.size(); ++offset) {
      if (weights[offset] > 0) offsets.push_back(offset);
    }
    return;
  }
  // A heap of the smallest keys so far, the largest of them first.
  keyed_.clear();
  for (std::uint64_t offset = 0; offset < weights.size(); ++offset) {
    if (!(weights[offset] > 0)) continue;
    const std::uint64_t draw = draw64(node_key, offset);
    // Most edges of a long list are passed over without their logarithm: -log(u) > 1 - u, here with room for rounding.
    if (keyed_.size() == count && (1 - uniform(draw)) * (1 - 1e-9) > keyed_.front().first * weights[offset]) continue;
    const Keyed entry{negative_log(draw) / weights[offset], offset};
    if (keyed_.size() < count) {
      keyed_.push_back(entry);
      std::ranges::push_heap(keyed_);
    } else if (entry < keyed_.front()) {
      std::ranges::pop_heap(keyed_);
      keyed_.back() = entry;
      std::ranges::push_heap(keyed_);
    }
  }
  std::ranges::sort_heap(keyed_);
  for (const Keyed& entry : keyed_) offsets.push_back(entry.second);
}

void ListPicker::draw_weighted_again(std::span<const double> weights, std::uint64_t count, std::uint64_t node_key,
                                     std::vector<std::uint64_t>& offsets) {
  sums_.clear();
  double sum = 0;
  for (const double weight : weights) sums_.push_back(sum += weight);
  if (!std::isfinite(sum)) throw std::domain_error("the weights of a list have no finite sum");
  if (!(sum > 0)) return;
  // The last edge that can be drawn: a product may be rounded up to the whole sum.
  const auto last = static_cast<std::uint64_t>(std::ranges::lower_bound(sums_, sum) - sums_.begin());
  for (std::uint64_t number = 0; number < count; ++number) {
    const double wanted = uniform(draw64(node_key, number)) * sum;
    const auto found = static_cast<std::uint64_t>(std::ranges::upper_bound(sums_, wanted) - sums_.begin());
    offsets.push_back(std::min(found, last));
  }
}

void ListPicker::pick_until(std::span<const std::int64_t> times, std::int64_t limit,
                            std::vector<std::uint64_t>& offsets) {
  for (std::uint64_t offset = 0; offset < times.size(); ++offset) {
    if (times[offset] <= limit) offsets.push_back(offset);
  }
}

void ListPicker::keep_latest(std::span<const std::int64_t> times, std::uint64_t count,
                             std::vector<std::uint64_t>& offsets) {
  const auto is_earlier = [times](std::uint64_t left, std::uint64_t right) {
    return std::tie(times[left], left) < std::tie(times[right], right);
  };
  if (offsets.size() > count) {
    const auto first = offsets.end() - static_cast<std::ptrdiff_t>(count);
    std::nth_element(offsets.begin(), first, offsets.end(), is_earlier);
    offsets.erase(offsets.begin(), first);
  }
  std::ranges::sort(offsets, is_earlier);
}

}  // namespace diskhop
