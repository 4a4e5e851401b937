// Vectors of floats as plain vector types, one register of the instruction set each, and groups of sixteen floats.
// Every operation is explicit and none is contracted, so all sets give the same bits.
//
// No vector is wider than a register: GCC keeps such a one on the stack, where its halves are loaded back by ways that
// take longer than the work, and its comparisons become scalar code. Heads of attention are eight for all sets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "diskhop/simd/values.hpp"

namespace diskhop {

constexpr std::size_t vector_floats = 16;

template <std::size_t lanes>
struct RegisterOf {
  using Floats [[gnu::vector_size(lanes * sizeof(float))]] = float;
  using Words [[gnu::vector_size(lanes * sizeof(float))]] = std::uint32_t;
  using HalfWords [[gnu::vector_size(lanes * sizeof(std::uint16_t))]] = std::uint16_t;
};

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

template <std::size_t lanes>
[[gnu::always_inline]] inline void load_words(const void* from, std::size_t count, RegisterWords<lanes>& words) {
  typename RegisterOf<lanes>::HalfWords halves{};
  if (count == lanes) {
    std::memcpy(&halves, from, sizeof halves);
  } else {
    std::memcpy(&halves, from, count * sizeof(std::uint16_t));
  }
  words = __builtin_convertvector(halves, RegisterWords<lanes>);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void store_words(void* to, std::size_t count, const RegisterWords<lanes>& words) {
  const auto halves = __builtin_convertvector(words, typename RegisterOf<lanes>::HalfWords);
  std::memcpy(to, &halves, count == lanes ? sizeof halves : count * sizeof(std::uint16_t));
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void load_register(const Bfloat16* from, std::size_t count, Register<lanes>& values) {
  RegisterWords<lanes> words;
  load_words<lanes>(from, count, words);
  words <<= 16;
  std::memcpy(&values, &words, sizeof values);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void load_register(const Float16* from, std::size_t count, Register<lanes>& values) {
  using Words = RegisterWords<lanes>;
  Words words;
  load_words<lanes>(from, count, words);
  // Exponent and fraction in their places. The exponent's bias is then 112 too small, also for subnormals.
  Words magnitude = (words & 0x7fff) << 13;
  std::memcpy(&values, &magnitude, sizeof values);
  values *= 0x1p112F;
  std::memcpy(&magnitude, &values, sizeof magnitude);
  const Words is_special = reinterpret_cast<Words>((words & 0x7c00) == 0x7c00);  // infinite or NaN
  magnitude |= (is_special & 0x7f800000) | ((words & 0x8000) << 16);
  std::memcpy(&values, &magnitude, sizeof values);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void store_register(Bfloat16* to, std::size_t count, const Register<lanes>& values) {
  using Words = RegisterWords<lanes>;
  Words words;
  std::memcpy(&words, &values, sizeof words);
  const Words rounded = words + 0x7fff + ((words >> 16) & 1);
  const Words is_nan = reinterpret_cast<Words>((words & 0x7fffffff) > 0x7f800000);
  words = (is_nan & 0x7fc00000) | (~is_nan & rounded);
  store_words<lanes>(to, count, words >> 16);
}

template <std::size_t lanes>
[[gnu::always_inline]] inline void store_register(Float16* to, std::size_t count, const Register<lanes>& values) {
  using Words = RegisterWords<lanes>;
  Words words;
  std::memcpy(&words, &values, sizeof words);
  const Words sign = (words >> 16) & 0x8000;
  const Words magnitude = words & 0x7fffffff;
  // Below 2^-14 the sum with a half has the fraction in its lowest bits, rounded by the addition.
  Register<lanes> shifted;
  std::memcpy(&shifted, &magnitude, sizeof shifted);
  shifted += 0.5F;
  Words small;
  std::memcpy(&small, &shifted, sizeof small);
  small -= 0x3f000000;
  const Words normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const Words is_small = reinterpret_cast<Words>(magnitude < 0x38800000);
  const Words is_large = reinterpret_cast<Words>(magnitude >= 0x477ff000);  // rounds to 2^16 or more
  const Words is_nan = reinterpret_cast<Words>(magnitude > 0x7f800000);
  words = (is_small & small) | (~is_small & normal);
  words = (is_large & 0x7c00) | (~is_large & words);
  store_words<lanes>(to, count, ((is_nan & 0x7e00) | (~is_nan & words)) | sign);
}

/// Reduces the lanes by halves: join(values, others) combines `others` into `values`, half as many each time.
template <typename Vector, typename Join>
[[gnu::always_inline]] inline float fold_lanes(const Vector& values, const Join& join) {
  constexpr std::size_t half = sizeof(Vector) / sizeof(float) / 2;
  if constexpr (half >= 4) {
    Register<half> halves[2];
    std::memcpy(&halves[0], &values, sizeof halves[0]);
    std::memcpy(&halves[1], reinterpret_cast<const std::byte*>(&values) + sizeof halves[0], sizeof halves[1]);
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

/// Sixteen floats, lane by lane. What is added up in them has the same order in every instruction set.
template <std::size_t lanes>
struct Floats {
  static constexpr std::size_t num_parts = vector_floats / lanes;
  Register<lanes> parts[num_parts];

  /// Calls change(register, its number) for each.
  template <typename Change>
  [[gnu::always_inline]] void for_parts(const Change& change) {
#pragma GCC unroll 4
    for (std::size_t part = 0; part < num_parts; ++part) change(parts[part], part);
  }

  [[gnu::always_inline]] Floats& operator+=(const Floats& other) {
    for_parts([&](Register<lanes>& part, std::size_t number)
                  __attribute__((always_inline)) { part += other.parts[number]; });
    return *this;
  }
  [[gnu::always_inline]] Floats& operator-=(const Floats& other) {
    for_parts([&](Register<lanes>& part, std::size_t number)
                  __attribute__((always_inline)) { part -= other.parts[number]; });
    return *this;
  }
  [[gnu::always_inline]] Floats& operator*=(const Floats& other) {
    for_parts([&](Register<lanes>& part, std::size_t number)
                  __attribute__((always_inline)) { part *= other.parts[number]; });
    return *this;
  }
  [[gnu::always_inline]] Floats& operator-=(float value) {
    for_parts([&](Register<lanes>& part, std::size_t) __attribute__((always_inline)) { part -= value; });
    return *this;
  }
  [[gnu::always_inline]] Floats& operator*=(float value) {
    for_parts([&](Register<lanes>& part, std::size_t) __attribute__((always_inline)) { part *= value; });
    return *this;
  }
  [[gnu::always_inline]] Floats& operator/=(float value) {
    for_parts([&](Register<lanes>& part, std::size_t) __attribute__((always_inline)) { part /= value; });
    return *this;
  }

  template <typename Other>
  [[gnu::always_inline]] Floats operator+(const Other& other) const {
    Floats result = *this;
    return result += other;
  }
  template <typename Other>
  [[gnu::always_inline]] Floats operator-(const Other& other) const {
    Floats result = *this;
    return result -= other;
  }
  template <typename Other>
  [[gnu::always_inline]] Floats operator*(const Other& other) const {
    Floats result = *this;
    return result *= other;
  }
};

/// Loads `count` values, at most 16; the rest become zeros.
template <std::size_t lanes, typename Value>
[[gnu::always_inline]] inline void load(const Value* from, std::size_t count, Floats<lanes>& values) {
  if (count == vector_floats) {
    values.for_parts([&](Register<lanes>& part, std::size_t number)
                         __attribute__((always_inline)) { load_register<lanes>(from + number * lanes, lanes, part); });
    return;
  }
  values.for_parts([&](Register<lanes>& part, std::size_t number) __attribute__((always_inline)) {
    const std::size_t first = std::min(count, number * lanes);
    load_register<lanes>(from + first, std::min(count - first, lanes), part);
  });
}

template <std::size_t lanes, typename Value>
[[gnu::always_inline]] inline void store(Value* to, std::size_t count, const Floats<lanes>& values) {
#pragma GCC unroll 4
  for (std::size_t part = 0; part < values.num_parts; ++part) {
    const std::size_t first = std::min(count, part * lanes);
    store_register<lanes>(to + first, std::min(count - first, lanes), values.parts[part]);
  }
}

/// Sets the lanes from `count` on to 0.
template <std::size_t lanes>
[[gnu::always_inline]] inline void clear_after(std::size_t count, Floats<lanes>& values) {
  float kept[vector_floats] = {};
  store(kept, count, values);
  load(kept, vector_floats, values);
}

/// fold_lanes() of all sixteen.
template <std::size_t lanes, typename Join>
[[gnu::always_inline]] inline float fold_lanes(const Floats<lanes>& of, const Join& join) {
  Floats<lanes> values = of;
#pragma GCC unroll 2
  for (std::size_t half = values.num_parts / 2; half > 0; half /= 2) {
#pragma GCC unroll 2
    for (std::size_t part = 0; part < half; ++part) join(values.parts[part], values.parts[part + half]);
  }
  return fold_lanes(values.parts[0], join);
}

/// Returns the sum of the lanes, added by halves.
template <std::size_t lanes>
[[gnu::always_inline]] inline float sum_of(const Floats<lanes>& values) {
  return fold_lanes(values, [](auto& sums, const auto& others) __attribute__((always_inline)) { sums += others; });
}

}  // namespace diskhop
