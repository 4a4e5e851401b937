// Columns of a graph's edges or nodes that samplers read: weights and times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "diskhop/rows/shared_scan.hpp"

namespace diskhop {

enum class ColumnType : std::uint8_t { int8, uint8, int16, uint16, int32, uint32, int64, float32, float64 };

[[nodiscard]] std::size_t bytes_of(ColumnType type);

/// One number per edge, in the order of `indices`, or per node. They are in memory or read by a scan, as contiguous
/// rows of one number.
struct Column {
  bool exists = false;  // false: there is no such column
  ColumnType type = ColumnType::float32;
  std::span<const std::byte> values{};
  SharedScan* scan = nullptr;
  [[nodiscard]] std::uint64_t num_values() const {
    return scan != nullptr ? scan->layout().num_rows : values.size() / bytes_of(type);
  }
};

/// Converts consecutive numbers of a type. Value: double, or std::int64_t for whole numbers.
template <typename Value>
void convert(ColumnType type, const std::byte* numbers, std::size_t count, Value* out);

extern template void convert<double>(ColumnType, const std::byte*, std::size_t, double*);
extern template void convert<std::int64_t>(ColumnType, const std::byte*, std::size_t, std::int64_t*);

}  // namespace diskhop
