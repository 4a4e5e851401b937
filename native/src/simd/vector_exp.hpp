// exp of a vector of floats, with the same bits for every instruction set (the library's exp differs).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simd/vectors.hpp"

namespace diskhop {

// Below this, exp is no normal number.
inline constexpr float smallest_exponent = -87.33F;

/// Replaces values, at most 0, by their exp, to a relative error of 2^-22. Values below smallest_exponent give 0; NaN
/// stays NaN. Vector: floats, of any width.
template <typename Vector>
[[gnu::always_inline]] inline void exp_nonpositive(Vector& values) {
  using Integers = std::remove_cvref_t<decltype(values < values)>;
  const Vector lowest = Vector{} + smallest_exponent;
  const Vector x = values >= lowest ? values : lowest;
  // exp(x) = 2^n exp(r) with n an integer and |r| at most ln(2) / 2.
  const Integers power = __builtin_convertvector(x * 1.44269504F - 0.5F, Integers);  // rounds towards 0
  const Vector n = __builtin_convertvector(power, Vector);
  // ln(2) in two parts. The first has so few bits that its product with n is exact.
  const Vector r = (x - n * 0.693145751953125F) - n * 1.42860677e-6F;
  // Taylor's series: the first term left out is below 2^-27.
  Vector sum = r * (1.0F / 5040) + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const Integers bits = (power + 127) << 23;
  Vector scale;
  std::memcpy(&scale, &bits, sizeof scale);
  const Vector result = values >= lowest ? sum * scale : Vector{};
  values = values == values ? result : values;
}

}  // namespace diskhop
