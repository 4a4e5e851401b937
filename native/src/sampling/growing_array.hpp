// Memory in which batches are assembled: kept from batch to batch, never initialised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "diskhop/io/buffer.hpp"

namespace diskhop {

/// An array that only grows. Values that were not written are undefined.
template <typename Value>
class GrowingArray {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  [[nodiscard]] Value* data() const { return reinterpret_cast<Value*>(memory_.data()); }
  [[nodiscard]] std::size_t num_bytes() const { return memory_.num_bytes(); }
  Value& operator[](std::size_t place) const { return data()[place]; }

  /// Reserves memory for `num_values`; the first `num_used` are kept.
  void reserve(std::size_t num_values, std::size_t num_used) {
    if (num_values * sizeof(Value) <= memory_.num_bytes()) return;
    // A quarter to spare: the next batch may be a little larger.
    Buffer larger((num_values + num_values / 4) * sizeof(Value));
    std::copy_n(data(), num_used, reinterpret_cast<Value*>(larger.data()));
    memory_ = std::move(larger);
  }

 private:
  Buffer memory_{0};
};

}  // namespace diskhop
