#include "diskhop/nn/activation.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/turns.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vector_draws.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Values that share a key of draws. Another length would give other draws.
constexpr std::size_t block_values = 4096;
constexpr std::size_t turn_values = 16 * block_values;

// Keeps the bits of `values` that the mask has set.
template <typename Values, typename Words>
[[gnu::always_inline]] inline void keep(const Words& mask, Values& values) {
  values = reinterpret_cast<Values>(reinterpret_cast<Words>(values) & mask);
}

struct Drop {
  std::uint64_t seed;
  std::uint64_t threshold = 0;  // smaller draws are dropped
  float scale;

  explicit Drop(const Dropout& dropout) : seed(dropout.seed), scale(1.0F / (1.0F - dropout.probability)) {
    if (!(dropout.probability >= 0 && dropout.probability < 1)) {
      throw std::invalid_argument("rectify: probability must be at least 0 and less than 1");
    }
    threshold = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(dropout.probability), 32));
  }
};

template <std::size_t lanes, typename Value>
struct Rectify {
  std::span<Value> values;
  Drop drop;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    using Words = RegisterWords<lanes>;
    Words places;
    for (std::size_t lane = 0; lane < lanes; ++lane) places[lane] = static_cast<std::uint32_t>(lane);
    const Words threshold = Words{} + static_cast<std::uint32_t>(drop.threshold);
    for (std::size_t block = begin; block < end; block += block_values) {
      const std::uint64_t key = absorb(drop.seed, block / block_values);
      const std::size_t block_end = std::min(end, block + block_values);
      for (std::size_t first = block; first < block_end; first += lanes) {
        const std::size_t count = std::min(lanes, block_end - first);
        Register<lanes> found;
        load_register<lanes>(values.data() + first, count, found);
        Words is_kept = reinterpret_cast<Words>(found > 0);
        if (drop.threshold != 0) {
          Words draws;
          draw_words(key, places + static_cast<std::uint32_t>(first - block), draws);
          is_kept &= reinterpret_cast<Words>(draws >= threshold);
          found *= drop.scale;
        }
        is_kept |= reinterpret_cast<Words>(found != found);
        keep(is_kept, found);
        store_register<lanes>(values.data() + first, count, found);
      }
    }
  }
};

template <std::size_t lanes, typename Value>
struct RectifyBackward {
  std::span<const Value> values;
  std::span<const Value> grad;
  std::span<Value> grad_values;
  float scale;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for (std::size_t first = begin; first < end; first += lanes) {
      const std::size_t count = std::min(lanes, end - first);
      Register<lanes> left;
      Register<lanes> found;
      load_register<lanes>(values.data() + first, count, left);
      load_register<lanes>(grad.data() + first, count, found);
      found *= scale;
      keep(~reinterpret_cast<RegisterWords<lanes>>(left == 0), found);
      store_register<lanes>(grad_values.data() + first, count, found);
    }
  }
};

template <typename Set, typename Task>
void share(Set set, const Task& task, std::size_t num_values, unsigned num_threads) {
  const std::size_t num_turns = (num_values + turn_values - 1) / turn_values;
  share_turns(num_turns, std::max(1U, num_threads), [&](std::size_t turn, std::size_t) {
    set.run(task, turn * turn_values, std::min(num_values, (turn + 1) * turn_values));
  });
}

}  // namespace

template <typename Value>
void rectify(std::span<Value> values, const Dropout& dropout, unsigned num_threads, InstructionSet instructions) {
  const Drop drop(dropout);
  with_instructions(instructions,
                    [&](auto set) { share(set, Rectify<set.lanes, Value>{values, drop}, values.size(), num_threads); });
}

template <typename Value>
void rectify_backward(std::span<const Value> values, std::span<const Value> grad, const Dropout& dropout,
                      std::span<Value> grad_values, unsigned num_threads, InstructionSet instructions) {
  if (grad.size() != values.size() || grad_values.size() != values.size()) {
    throw std::invalid_argument("rectify: values and gradients must have the same length");
  }
  const Drop drop(dropout);
  with_instructions(instructions, [&](auto set) {
    share(set, RectifyBackward<set.lanes, Value>{values, grad, grad_values, drop.scale}, values.size(), num_threads);
  });
}

template void rectify(std::span<float>, const Dropout&, unsigned, InstructionSet);
template void rectify(std::span<Bfloat16>, const Dropout&, unsigned, InstructionSet);
template void rectify_backward(std::span<const float>, std::span<const float>, const Dropout&, std::span<float>,
                               unsigned, InstructionSet);
template void rectify_backward(std::span<const Bfloat16>, std::span<const Bfloat16>, const Dropout&,
                               std::span<Bfloat16>, unsigned, InstructionSet);

}  // namespace diskhop
