#include "diskhop/sampling/column.hpp"

#include <cstring>
#include <limits>
#include <type_traits>

namespace diskhop {
namespace {

/// Calls a function with a number of the type.
template <typename Use>
auto with_type(ColumnType type, Use use) {
  switch (type) {
    case ColumnType::int8:
      return use(std::int8_t{});
    case ColumnType::uint8:
      return use(std::uint8_t{});
    case ColumnType::int16:
      return use(std::int16_t{});
    case ColumnType::uint16:
      return use(std::uint16_t{});
    case ColumnType::int32:
      return use(std::int32_t{});
    case ColumnType::uint32:
      return use(std::uint32_t{});
    case ColumnType::int64:
      return use(std::int64_t{});
    case ColumnType::float32:
      return use(float{});
    case ColumnType::float64:
      break;
  }
  return use(double{});
}

/// A number as another type. One that no int64 holds becomes the nearest that it holds, and NaN the least.
template <typename Value, typename Number>
Value as_type(Number number) {
  if constexpr (std::is_integral_v<Value> && std::is_floating_point_v<Number>) {
    constexpr auto end = static_cast<Number>(std::uint64_t{1} << 63);
    if (number >= end) return std::numeric_limits<Value>::max();
    if (!(number >= -end)) return std::numeric_limits<Value>::min();
  }
  return static_cast<Value>(number);
}

}  // namespace

std::size_t bytes_of(ColumnType type) {
  return with_type(type, [](auto number) { return sizeof(number); });
}

template <typename Value>
void convert(ColumnType type, const std::byte* numbers, std::size_t count, Value* out) {
  with_type(type, [&](auto number) {
    for (std::size_t place = 0; place < count; ++place) {
      std::memcpy(&number, numbers + place * sizeof(number), sizeof(number));
      out[place] = as_type<Value>(number);
    }
  });
}

template void convert<double>(ColumnType, const std::byte*, std::size_t, double*);
template void convert<std::int64_t>(ColumnType, const std::byte*, std::size_t, std::int64_t*);

}  // namespace diskhop
