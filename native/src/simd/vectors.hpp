// Vectors of sixteen floats as plain vector types. The compiler maps them to the instruction set; every operation is
// explicit and none is contracted, so all sets give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "diskhop/simd/values.hpp"

namespace diskhop {

constexpr std::size_t vector_floats = 16;

using Floats [[gnu::vector_size(64)]] = float;
using Words [[gnu::vector_size(64)]] = std::uint32_t;
using HalfWords [[gnu::vector_size(32)]] = std::uint16_t;

template <std::size_t lanes>
struct RegisterOf {
  using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
  using Words [[gnu::vector_size(lanes * sizeof(float))]] = std::uint32_t;
};

/// Vector of one register's size: comparisons of wider vectors become scalar code (GCC 12).
template <std::size_t lanes>
using Register = typename RegisterOf<lanes>::Floats;
template <std::size_t lanes>
using RegisterWords = typename RegisterOf<lanes>::Words;

/// Loads `count` values, at most a register's; the rest become zeros.
template <std::size_t lanes>
[[gnu::always_inline]] inline void load_register(const float* from, std::size_t count, Register<lanes>& values) {
  if (count == lanes) {
    std::memcpy(&values, from, sizeof values);
  } else {
    values = Register<lanes>{};
    std::memcpy(&values, from, count * sizeof(float));
  }
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void store_register(float* to, std::size_t count, const Register<lanes>& values) {
  std::memcpy(to, &values, count == lanes ? sizeof values : count * sizeof(float));
}

/// Loads `count` values, at most 16; the rest become zeros.
[[gnu::always_inline]] inline void load(const float* from, std::size_t count, Floats& values) {
  load_register<vector_floats>(from, count, values);
}

[[gnu::always_inline]] inline void load_words(const void* from, std::size_t count, Words& words) {
  HalfWords halves{};
  if (count == vector_floats) {
    std::memcpy(&halves, from, sizeof halves);
  } else {
    std::memcpy(&halves, from, count * sizeof(std::uint16_t));
  }
  words = __builtin_convertvector(halves, Words);
}

[[gnu::always_inline]] inline void load(const Bfloat16* from, std::size_t count, Floats& values) {
  Words words;
  load_words(from, count, words);
  words <<= 16;
  std::memcpy(&values, &words, sizeof values);
}

[[gnu::always_inline]] inline void load(const Float16* from, std::size_t count, Floats& values) {
  Words words;
  load_words(from, count, words);
  // Exponent and fraction in their places. The exponent's bias is then 112 too small, also for subnormals.
  Words magnitude = (words & 0x7fff) << 13;
  std::memcpy(&values, &magnitude, sizeof values);
  values *= 0x1p112F;
  std::memcpy(&magnitude, &values, sizeof magnitude);
  const Words is_special = (words & 0x7c00) == 0x7c00;  // infinite or NaN
  magnitude |= (is_special & 0x7f800000) | ((words & 0x8000) << 16);
  std::memcpy(&values, &magnitude, sizeof values);
}

[[gnu::always_inline]] inline void store(float* to, std::size_t count, const Floats& values) {
  store_register<vector_floats>(to, count, values);
}

[[gnu::always_inline]] inline void store(Bfloat16* to, std::size_t count, const Floats& values) {
  Words words;
  std::memcpy(&words, &values, sizeof words);
  const Words rounded = words + 0x7fff + ((words >> 16) & 1);
  const Words is_nan = (words & 0x7fffffff) > 0x7f800000;
  words = (is_nan & 0x7fc00000) | (~is_nan & rounded);
  const HalfWords halves = __builtin_convertvector(words >> 16, HalfWords);
  std::memcpy(to, &halves, count == vector_floats ? sizeof halves : count * sizeof(std::uint16_t));
}

[[gnu::always_inline]] inline void store(Float16* to, std::size_t count, const Floats& values) {
  Words words;
  std::memcpy(&words, &values, sizeof words);
  const Words sign = (words >> 16) & 0x8000;
  const Words magnitude = words & 0x7fffffff;
  // Below 2^-14 the sum with a half has the fraction in its lowest bits, rounded by the addition.
  Floats shifted;
  std::memcpy(&shifted, &magnitude, sizeof shifted);
  shifted += 0.5F;
  Words small;
  std::memcpy(&small, &shifted, sizeof small);
  small -= 0x3f000000;
  const Words normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const Words is_small = magnitude < 0x38800000;
  const Words is_large = magnitude >= 0x477ff000;  // rounds to 2^16 or more
  const Words is_nan = magnitude > 0x7f800000;
  Words halves32 = (is_small & small) | (~is_small & normal);
  halves32 = (is_large & 0x7c00) | (~is_large & halves32);
  halves32 = ((is_nan & 0x7e00) | (~is_nan & halves32)) | sign;
  const HalfWords halves = __builtin_convertvector(halves32, HalfWords);
  std::memcpy(to, &halves, count == vector_floats ? sizeof halves : count * sizeof(std::uint16_t));
}

/// Reduces the lanes by halves: join(values, others) combines `others` into `values`, half as many each time.
template <typename Vector, typename Join>
[[gnu::always_inline]] inline float fold_lanes(const Vector& values, const Join& join) {
  constexpr std::size_t half = sizeof(Vector) / sizeof(float) / 2;
  if constexpr (half >= 4) {
    Register<half> halves[2];
    std::memcpy(halves, &values, sizeof halves);
    join(halves[0], halves[1]);
    return fold_lanes(halves[0], join);
  } else {
    float lanes[4];
    static_assert(sizeof lanes == sizeof values);
    std::memcpy(lanes, &values, sizeof lanes);
    join(lanes[0], lanes[2]);
    join(lanes[1], lanes[3]);
    join(lanes[0], lanes[1]);
    return lanes[0];
  }
}

/// Returns the sum of the lanes, added by halves.
[[gnu::always_inline]] inline float sum_of(const Floats& values) {
  return fold_lanes(values, [](auto& sums, const auto& others) __attribute__((always_inline)) { sums += others; });
}

}  // namespace diskhop
