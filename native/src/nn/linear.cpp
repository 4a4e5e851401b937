#include "diskhop/nn/linear.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "base/turns.hpp"
#include "nn/layer_products.hpp"
#include "simd/instruction_sets.hpp"
#include "simd/vectors.hpp"

namespace diskhop {
namespace {

// Rows per turn: with their results they stay in a core's second-level cache.
constexpr std::size_t turn_rows = 256;
// Gradients of parameters are summed in at most this many parts, each of whole turns: the same sums in the same order
// for any number of threads.
constexpr std::size_t most_parts = 32;
constexpr std::size_t part_turns = 2;
constexpr std::size_t line_floats = 16;
constexpr std::size_t line_bytes = 64;
// Rows at places whose lines are requested before they are copied.
constexpr std::size_t rows_ahead = 2;
// Columns of parameters per turn of the final sums.
constexpr std::size_t turn_sums = 8192;

std::size_t turns_of(std::size_t num_rows) { return (num_rows + turn_rows - 1) / turn_rows; }

std::size_t parts_of(std::size_t num_rows) {
  return std::clamp<std::size_t>((turns_of(num_rows) + part_turns - 1) / part_turns, 1, most_parts);
}

std::size_t whole_lines(std::size_t num_floats) { return (num_floats + line_floats - 1) / line_floats * line_floats; }

void require(bool fits) {
  if (!fits) throw std::invalid_argument("linear: rows, weight, bias and gradients must fit each other");
}

// to = from + bias (null: none), rounded.
template <std::size_t lanes, typename Value>
struct Round {
  const float* from;
  const Value* bias;
  std::size_t num_columns;
  Value* to;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t row = 0; row < num_rows; ++row) {
      for (std::size_t first = 0; first < num_columns; first += vector_floats) {
        const std::size_t count = std::min(vector_floats, num_columns - first);
        Floats<lanes> sums;
        load(from + row * num_columns + first, count, sums);
        if (bias != nullptr) {
          Floats<lanes> biases;
          load(bias + first, count, biases);
          sums += biases;
        }
        store(to + row * num_columns + first, count, sums);
      }
    }
  }
};

// to = a row, in another type
template <std::size_t lanes, typename Row, typename Value>
[[gnu::always_inline]] inline void copy_row(const Row* from, std::size_t num_columns, Value* to) {
  if constexpr (std::is_same_v<Row, Value>) {
    std::copy_n(from, num_columns, to);
  } else {
    for (std::size_t first = 0; first < num_columns; first += vector_floats) {
      const std::size_t count = std::min(vector_floats, num_columns - first);
      Floats<lanes> values;
      load(from + first, count, values);
      store(to + first, count, values);
    }
  }
}

// to = rows `begin` to `end` of those wanted
template <std::size_t lanes, typename Row, typename Value>
struct CopyRows {
  const Row* rows;
  const std::int64_t* places;  // null: all rows, in order
  std::size_t num_columns;
  Value* to;

  [[nodiscard, gnu::always_inline]] const Row* row_at(std::size_t row) const {
    return rows + (places == nullptr ? row : static_cast<std::size_t>(places[row])) * num_columns;
  }

  // The processor foresees lines of a row, but not where the next row is.
  [[gnu::always_inline]] void prefetch(const Row* row) const {
    for (std::size_t first = 0; first < num_columns; first += line_bytes / sizeof(Row)) __builtin_prefetch(row + first);
  }

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for (std::size_t row = begin; row < end; ++row) {
      if (places != nullptr && row + rows_ahead < end) prefetch(row_at(row + rows_ahead));
      copy_row<lanes>(row_at(row), num_columns, to + (row - begin) * num_columns);
    }
  }
};

// The rows of x that a layer multiplies. Products take contiguous rows of one type.
template <typename Value, typename Row>
class WantedRows {
  static_assert(std::is_same_v<Row, Value> || std::is_same_v<Value, float>);

 public:
  WantedRows(std::span<const Row> x, std::size_t num_columns, const Places& places)
      : x_(x), num_columns_(num_columns), places_(places) {
    const std::size_t num_rows = x.size() / num_columns;
    const auto is_row = [&](std::int64_t place) { return place >= 0 && static_cast<std::size_t>(place) < num_rows; };
    if (places && !std::ranges::all_of(*places, is_row)) {
      throw std::invalid_argument("linear: places must be rows of x");
    }
  }

  [[nodiscard]] std::size_t size() const { return places_ ? places_->size() : x_.size() / num_columns_; }

  // Memory of a lane for the rows of a turn.
  [[nodiscard]] std::size_t lane_floats() const {
    return std::is_same_v<Row, Value> && !places_ ? 0 : whole_lines(turn_rows * num_columns_);
  }

  // Returns `count` rows: where they lie, or in the given memory.
  [[nodiscard]] const Value* take(std::size_t first, std::size_t count, float* memory) const {
    if constexpr (std::is_same_v<Row, Value>) {
      if (!places_) return x_.data() + first * num_columns_;
    }
    auto* const to = reinterpret_cast<Value*>(memory);
    const std::int64_t* places = places_ ? places_->data() : nullptr;
    with_instructions(best_instruction_set(), [&](auto set) {
      set.run(CopyRows<set.lanes, Row, Value>{x_.data(), places, num_columns_, to}, first, first + count);
    });
    return to;
  }

 private:
  std::span<const Row> x_;
  std::size_t num_columns_;
  Places places_;
};

// sums += every row
template <std::size_t lanes, typename Value>
struct AddRows {
  const Value* rows;
  std::size_t num_columns;
  float* sums;

  [[gnu::always_inline]] void operator()(std::size_t num_rows) const {
    for (std::size_t first = 0; first < num_columns; first += vector_floats) {
      const std::size_t count = std::min(vector_floats, num_columns - first);
      Floats<lanes> total;
      load(sums + first, count, total);
      for (std::size_t row = 0; row < num_rows; ++row) {
        Floats<lanes> values;
        load(rows + row * num_columns + first, count, values);
        total += values;
      }
      store(sums + first, count, total);
    }
  }
};

// out = the sum of parts that are `stride` apart
struct Parts {
  const float* parts;
  std::size_t num_parts;
  std::size_t stride;
  float* out;
};

template <std::size_t lanes>
struct AddParts {
  Parts of;

  [[gnu::always_inline]] void operator()(std::size_t begin, std::size_t end) const {
    for (std::size_t first = begin; first < end; first += vector_floats) {
      const std::size_t count = std::min(vector_floats, end - first);
      Floats<lanes> total{};
      for (std::size_t part = 0; part < of.num_parts; ++part) {
        Floats<lanes> values;
        load(of.parts + part * of.stride + first, count, values);
        total += values;
      }
      store(of.out + first, count, total);
    }
  }
};

void add_parts(const Parts& parts, std::size_t num_sums, std::size_t num_threads) {
  with_instructions(best_instruction_set(), [&](auto set) {
    share_turns((num_sums + turn_sums - 1) / turn_sums, num_threads, [&](std::size_t turn, std::size_t) {
      set.run(AddParts<set.lanes>{parts}, turn * turn_sums, std::min(num_sums, (turn + 1) * turn_sums));
    });
  });
}

}  // namespace

std::optional<MatrixProducts> find_mkl() {
  // Only if it is already loaded: the handle stays valid as long as the library is.
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return std::nullopt;
  const MatrixProducts found{
      .of_floats = reinterpret_cast<Gemm<float>>(dlsym(library, "sgemm_")),
      .of_bfloat16 = reinterpret_cast<Gemm<Bfloat16>>(dlsym(library, "gemm_bf16bf16f32_")),
      .limit_threads = reinterpret_cast<int (*)(int)>(dlsym(library, "MKL_Set_Num_Threads_Local")),
  };
  dlclose(library);
  if (found.of_floats == nullptr || found.of_bfloat16 == nullptr || found.limit_threads == nullptr) return std::nullopt;
  return found;
}

template <typename Value, typename Row>
void linear(const MatrixProducts& products, std::span<const std::type_identity_t<Row>> x, std::span<const Value> weight,
            std::span<const Value> bias, std::size_t in_dim, const std::optional<Dropout>& dropout,
            std::span<Value> out, BufferPool& scratch, unsigned num_threads, const Places& places) {
  require(in_dim > 0);
  const WantedRows<Value, Row> wanted(x, in_dim, places);
  const std::size_t out_dim = weight.size() / in_dim;
  const std::size_t num_rows = wanted.size();
  require(x.size() % in_dim == 0 && weight.size() == out_dim * in_dim && out.size() == num_rows * out_dim &&
          (bias.empty() || bias.size() == out_dim));
  if (dropout) rectify(std::span<Value>(), *dropout, 1);  // throws, before anything is written
  const LayerProducts<Value> layer(products, in_dim, out_dim);
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, std::max<std::size_t>(1, turns_of(num_rows)));
  constexpr bool rounds = !std::is_same_v<Value, float>;
  const std::size_t sums_floats = rounds ? whole_lines(turn_rows * out_dim) : 0;
  const std::size_t lane_floats = sums_floats + wanted.lane_floats();
  const PooledBuffer memory(scratch, num_lanes * lane_floats * sizeof(float));
  share_turns(turns_of(num_rows), num_lanes, [&](std::size_t turn, std::size_t lane) {
    const OneThread one(products);
    const std::size_t first = turn * turn_rows;
    const std::size_t count = std::min(turn_rows, num_rows - first);
    float* const of_lane = reinterpret_cast<float*>(memory.data()) + lane * lane_floats;
    const Value* rows = wanted.take(first, count, of_lane + sums_floats);
    const std::span<Value> results = out.subspan(first * out_dim, count * out_dim);
    if constexpr (rounds) {
      layer.forward(rows, weight.data(), count, 0, of_lane);
      with_instructions(best_instruction_set(), [&](auto set) {
        set.run(Round<set.lanes, Value>{of_lane, bias.empty() ? nullptr : bias.data(), out_dim, results.data()}, count);
      });
    } else {
      for (std::size_t row = 0; row < count && !bias.empty(); ++row) {
        std::copy(bias.begin(), bias.end(), results.data() + row * out_dim);
      }
      layer.forward(rows, weight.data(), count, bias.empty() ? 0.0F : 1.0F, results.data());
    }
    if (dropout) rectify(results, {.probability = dropout->probability, .seed = dropout->seed + first}, 1);
  });
}

template <typename Value, typename Row>
void linear_backward(const MatrixProducts& products, std::span<const Value> grad,
                     std::span<const std::type_identity_t<Row>> x, std::span<const Value> weight, std::size_t in_dim,
                     std::span<const Value> left, const std::optional<Dropout>& dropout, std::span<Value> grad_x,
                     std::span<float> grad_weight, std::span<float> grad_bias, BufferPool& scratch,
                     unsigned num_threads, const Places& places) {
  require(in_dim > 0);
  const WantedRows<Value, Row> wanted(x, in_dim, places);
  const std::size_t out_dim = grad_bias.size();
  const std::size_t num_rows = wanted.size();
  require(x.size() % in_dim == 0 && (weight.empty() || !places) && grad.size() == num_rows * out_dim &&
          grad_weight.size() == out_dim * in_dim && (weight.empty() || weight.size() == grad_weight.size()) &&
          grad_x.size() == (weight.empty() ? 0 : x.size()) && left.size() == (dropout ? grad.size() : 0));
  if (dropout) rectify(std::span<Value>(), *dropout, 1);  // throws, before anything is written
  const LayerProducts<Value> layer(products, in_dim, out_dim);
  const std::size_t num_turns = turns_of(num_rows);
  const std::size_t num_parts = parts_of(num_rows);
  const std::size_t num_lanes = std::clamp<std::size_t>(num_threads, 1, num_parts);
  constexpr bool rounds = !std::is_same_v<Value, float>;

  // Per part: sums of weight and bias. Per lane: rectified gradients, gradients of x before rounding, and x.
  const std::size_t weight_floats = whole_lines(grad_weight.size());
  const std::size_t part_floats = weight_floats + whole_lines(out_dim);
  const std::size_t rectified_floats = whole_lines(turn_rows * out_dim);
  const std::size_t rounded_floats = whole_lines(rounds ? turn_rows * in_dim : 0);
  const std::size_t lane_floats = rectified_floats + rounded_floats + wanted.lane_floats();
  const PooledBuffer memory(scratch, (num_parts * part_floats + num_lanes * lane_floats) * sizeof(float));
  auto* parts = reinterpret_cast<float*>(memory.data());
  float* lanes = parts + num_parts * part_floats;

  share_turns(num_parts, num_lanes, [&](std::size_t part, std::size_t lane) {
    const OneThread one(products);
    float* weight_sums = parts + part * part_floats;
    float* bias_sums = weight_sums + weight_floats;
    std::fill_n(weight_sums, part_floats, 0.0F);
    float* of_lane = lanes + lane * lane_floats;
    for (std::size_t turn = num_turns * part / num_parts; turn < num_turns * (part + 1) / num_parts; ++turn) {
      const std::size_t first = turn * turn_rows;
      const std::size_t count = std::min(turn_rows, num_rows - first);
      std::span<const Value> grads = grad.subspan(first * out_dim, count * out_dim);
      if (dropout) {
        const std::span<Value> rectified(reinterpret_cast<Value*>(of_lane), grads.size());
        rectify_backward(left.subspan(first * out_dim, grads.size()), grads, *dropout, rectified, 1);
        grads = rectified;
      }
      const Value* rows = wanted.take(first, count, of_lane + rectified_floats + rounded_floats);
      layer.of_weight(grads.data(), rows, count, 1, weight_sums);
      with_instructions(best_instruction_set(),
                        [&](auto set) { set.run(AddRows<set.lanes, Value>{grads.data(), out_dim, bias_sums}, count); });
      if (weight.empty()) continue;
      Value* of_x = grad_x.data() + first * in_dim;
      if constexpr (rounds) {
        float* sums = of_lane + rectified_floats;
        layer.of_x(grads.data(), weight.data(), count, sums);
        with_instructions(best_instruction_set(),
                          [&](auto set) { set.run(Round<set.lanes, Value>{sums, nullptr, in_dim, of_x}, count); });
      } else {
        layer.of_x(grads.data(), weight.data(), count, of_x);
      }
    }
  });
  add_parts({parts, num_parts, part_floats, grad_weight.data()}, grad_weight.size(), num_lanes);
  add_parts({parts + weight_floats, num_parts, part_floats, grad_bias.data()}, grad_bias.size(), 1);
}

template void linear<float, float>(const MatrixProducts&, std::span<const float>, std::span<const float>,
                                   std::span<const float>, std::size_t, const std::optional<Dropout>&, std::span<float>,
                                   BufferPool&, unsigned, const Places&);
template void linear_backward<float, float>(const MatrixProducts&, std::span<const float>, std::span<const float>,
                                            std::span<const float>, std::size_t, std::span<const float>,
                                            const std::optional<Dropout>&, std::span<float>, std::span<float>,
                                            std::span<float>, BufferPool&, unsigned, const Places&);
template void linear<float, Bfloat16>(const MatrixProducts&, std::span<const Bfloat16>, std::span<const float>,
                                      std::span<const float>, std::size_t, const std::optional<Dropout>&,
                                      std::span<float>, BufferPool&, unsigned, const Places&);
template void linear_backward<float, Bfloat16>(const MatrixProducts&, std::span<const float>, std::span<const Bfloat16>,
                                               std::span<const float>, std::size_t, std::span<const float>,
                                               const std::optional<Dropout>&, std::span<float>, std::span<float>,
                                               std::span<float>, BufferPool&, unsigned, const Places&);
template void linear<float, Float16>(const MatrixProducts&, std::span<const Float16>, std::span<const float>,
                                     std::span<const float>, std::size_t, const std::optional<Dropout>&,
                                     std::span<float>, BufferPool&, unsigned, const Places&);
template void linear_backward<float, Float16>(const MatrixProducts&, std::span<const float>, std::span<const Float16>,
                                              std::span<const float>, std::size_t, std::span<const float>,
                                              const std::optional<Dropout>&, std::span<float>, std::span<float>,
                                              std::span<float>, BufferPool&, unsigned, const Places&);
template void linear<Bfloat16, Bfloat16>(const MatrixProducts&, std::span<const Bfloat16>, std::span<const Bfloat16>,
                                         std::span<const Bfloat16>, std::size_t, const std::optional<Dropout>&,
                                         std::span<Bfloat16>, BufferPool&, unsigned, const Places&);
template void linear_backward<Bfloat16, Bfloat16>(const MatrixProducts&, std::span<const Bfloat16>,
                                                  std::span<const Bfloat16>, std::span<const Bfloat16>, std::size_t,
                                                  std::span<const Bfloat16>, const std::optional<Dropout>&,
                                                  std::span<Bfloat16>, std::span<float>, std::span<float>, BufferPool&,
                                                  unsigned, const Places&);

}  // namespace diskhop
