// Passing arrays between the core and NumPy without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "diskhop/io/buffer.hpp"
#include "diskhop/simd/values.hpp"

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

/// Returns a view of rows, which may be any distance apart. Throws std::invalid_argument, which begins with `what`, if
/// the columns of a row are.
template <typename Value, typename Array>
[[nodiscard]] Matrix<Value> as_matrix(const Array& array, const char* what) {
  if (array.shape(1) > 1 && array.stride(1) != 1) {
    throw std::invalid_argument(std::string(what) + ": columns must be contiguous");
  }
  return {static_cast<Value*>(array.data()), array.shape(0), array.shape(1), static_cast<std::size_t>(array.stride(0))};
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
