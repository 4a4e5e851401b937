#include "diskhop/nn/activation.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/turns.hpp"
#include "diskhop/base/random.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Values that share a key of draws. Another length would give other draws.
constexpr std::size_t block_values = 4096;
constexpr std::size_t turn_values = 16 * block_values;

// Fills words with draw32(key, counter) for sixteen counters.
[[gnu::always_inline]] inline void draw(std::uint64_t key, const Words& counters, Words& words) {
  words = static_cast<std::uint32_t>(key) + (counters + 1) * golden32;
  words = (words ^ (words >> 16)) * 0x85ebca6bU;
  words ^= words >> 13;
  words = (words + static_cast<std::uint32_t>(key >> 32)) * 0xc2b2ae35U;
  words ^= words >> 16;
}

// Keeps the bits of `values` that the mask has set.
[[gnu::always_inline]] inline void keep(const Words& mask, Floats& values) {
  Words words;
  std::memcpy(&words, &values, sizeof words);
  words &= mask;
  std::memcpy(&values, &words, sizeof values);
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

template <typename Value>
struct Rectify {
  std::span<Value> values;
  Drop drop;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    constexpr Words lanes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const Words threshold = Words{} + static_cast<std::uint32_t>(drop.threshold);
    for (std::size_t block = begin; block < end; block += block_values) {
      const std::uint64_t key = absorb(drop.seed, block / block_values);
      const std::size_t block_end = std::min(end, block + block_values);
      for (std::size_t first = block; first < block_end; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, block_end - first);
        Floats found;
        load(values.data() + first, count, found);
        Words is_kept = reinterpret_cast<Words>(found > 0);
        if (drop.threshold != 0) {
          Words draws;
          draw(key, lanes + static_cast<std::uint32_t>(first - block), draws);
          is_kept &= reinterpret_cast<Words>(draws >= threshold);
          found *= drop.scale;
        }
        is_kept |= reinterpret_cast<Words>(found != found);
        keep(is_kept, found);
        store(values.data() + first, count, found);
      }
    }
  }
};

template <typename Value>
struct RectifyBackward {
  std::span<const Value> values;
  std::span<const Value> grad;
  std::span<Value> grad_values;
  float scale;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for (std::size_t first = begin; first < end; first += vector_floats) {
      const std::size_t count = std::min(vector_floats, end - first);
      Floats left;
      Floats found;
      load(values.data() + first, count, left);
      load(grad.data() + first, count, found);
      found *= scale;
      keep(~reinterpret_cast<Words>(left == 0), found);
      store(grad_values.data() + first, count, found);
    }
  }
};

template <typename Task>
void share(const Task& task, std::size_t num_values, unsigned num_threads, InstructionSet instructions) {
  const std::size_t num_turns = (num_values + turn_values - 1) / turn_values;
  share_turns(num_turns, std::max(1U, num_threads), [&](std::size_t turn, std::size_t) {
    run_with(instructions, task, turn * turn_values, std::min(num_values, (turn + 1) * turn_values));
  });
}

}  // namespace

template <typename Value>
void rectify(std::span<Value> values, const Dropout& dropout, unsigned num_threads, InstructionSet instructions) {
  share(Rectify<Value>{values, Drop(dropout)}, values.size(), num_threads, instructions);
}

template <typename Value>
void rectify_backward(std::span<const Value> values, std::span<const Value> grad, const Dropout& dropout,
                      std::span<Value> grad_values, unsigned num_threads, InstructionSet instructions) {
  if (grad.size() != values.size() || grad_values.size() != values.size()) {
    throw std::invalid_argument("rectify: values and gradients must have the same length");
  }
  share(RectifyBackward<Value>{values, grad, grad_values, Drop(dropout).scale}, values.size(), num_threads,
        instructions);
}

template void rectify(std::span<float>, const Dropout&, unsigned, InstructionSet);
template void rectify(std::span<Bfloat16>, const Dropout&, unsigned, InstructionSet);
template void rectify_backward(std::span<const float>, std::span<const float>, const Dropout&, std::span<float>,
                               unsigned, InstructionSet);
template void rectify_backward(std::span<const Bfloat16>, std::span<const Bfloat16>, const Dropout&,
                               std::span<Bfloat16>, unsigned, InstructionSet);

}  // namespace diskhop
