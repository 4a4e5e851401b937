// Passing arrays between the core and NumPy without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "diskhop/io/buffer.hpp"

namespace diskhop {

/// Input array: contiguous, one-dimensional, in CPU memory.
template <typename Value>
using InputArray = nanobind::ndarray<const Value, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

/// Array that the core changes in place.
template <typename Value>
using InOutArray = nanobind::ndarray<Value, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

template <typename Value>
using OutputArray = nanobind::ndarray<nanobind::numpy, Value, nanobind::c_contig>;

template <typename Value>
[[nodiscard]] std::span<const Value> as_span(const InputArray<Value>& array) {
  return {array.data(), array.size()};
}

template <typename Value>
[[nodiscard]] std::span<Value> as_span(const InOutArray<Value>& array) {
  return {array.data(), array.size()};
}

/// Moves a vector's memory into a NumPy array, with rows of num_columns unless that is 0. Needs the GIL.
template <typename Value>
[[nodiscard]] OutputArray<Value> as_array(std::vector<Value> values, std::size_t num_columns = 0) {
  auto owned = std::make_unique<std::vector<Value>>(std::move(values));
  std::vector<Value>* kept = owned.get();
  const nanobind::capsule owner(kept, [](void* vector) noexcept { delete static_cast<std::vector<Value>*>(vector); });
  static_cast<void>(owned.release());
  if (num_columns == 0) return OutputArray<Value>(kept->data(), {kept->size()}, owner);
  return OutputArray<Value>(kept->data(), {kept->size() / num_columns, num_columns}, owner);
}

/// Owner of arrays in a pool's buffer: the buffer returns to the pool with the last of them. Needs the GIL.
[[nodiscard]] inline nanobind::capsule lend(nanobind::handle_t<BufferPool> pool, Buffer buffer) {
  struct Loan {
    nanobind::object pool;
    Buffer buffer;
  };
  auto loan = std::make_unique<Loan>(nanobind::borrow(pool), std::move(buffer));
  return {loan.release(), [](void* pointer) noexcept {
            const std::unique_ptr<Loan> ended(static_cast<Loan*>(pointer));
            nanobind::cast<BufferPool&>(ended->pool).give_back(std::move(ended->buffer));
          }};
}

}  // namespace diskhop
