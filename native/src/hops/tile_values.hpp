// Values of a hop table, of any format, converted to floats and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "diskhop/hops/propagate.hpp"
#include "simd/vectors.hpp"

namespace diskhop {

using Quad [[gnu::vector_size(16)]] = float;  // a tile's row

[[gnu::always_inline]] inline Quad load_quad(const float* from) {
  Quad quad;
  std::memcpy(&quad, from, sizeof quad);
  return quad;
}

[[gnu::always_inline]] inline void store_quad(float* to, const Quad& quad) { std::memcpy(to, &quad, sizeof quad); }

template <std::size_t lanes, typename Value>
[[gnu::always_inline]] inline void widen_values(const std::byte* from, std::size_t count, float* to) {
  const auto* values = reinterpret_cast<const Value*>(from);
  for (std::size_t first = 0; first < count; first += lanes) {
    const std::size_t part = std::min(count - first, lanes);
    Register<lanes> floats;
    load_register<lanes>(values + first, part, floats);
    store_register<lanes>(to + first, part, floats);
  }
}

template <std::size_t lanes, typename Value>
[[gnu::always_inline]] inline void narrow_values(const float* from, std::size_t count, std::byte* to) {
  auto* values = reinterpret_cast<Value*>(to);
  for (std::size_t first = 0; first < count; first += lanes) {
    const std::size_t part = std::min(count - first, lanes);
    Register<lanes> floats;
    load_register<lanes>(from + first, part, floats);
    store_register<lanes>(values + first, part, floats);
  }
}

/// Converts `count` values of a format to float.
template <std::size_t lanes>
[[gnu::always_inline]] inline void widen(ValueFormat format, const std::byte* from, std::size_t count, float* to) {
  if (format == ValueFormat::float32) {
    std::memcpy(to, from, count * sizeof(float));
  } else if (format == ValueFormat::float16) {
    widen_values<lanes, Float16>(from, count, to);
  } else {
    widen_values<lanes, Bfloat16>(from, count, to);
  }
}

/// Converts `count` floats to a format, rounded to nearest even.
template <std::size_t lanes>
[[gnu::always_inline]] inline void narrow(ValueFormat format, const float* from, std::size_t count, std::byte* to) {
  if (format == ValueFormat::float32) {
    std::memcpy(to, from, count * sizeof(float));
  } else if (format == ValueFormat::float16) {
    narrow_values<lanes, Float16>(from, count, to);
  } else {
    narrow_values<lanes, Bfloat16>(from, count, to);
  }
}

}  // namespace diskhop
