#ifndef INFINI_OPS_CUDA_QUANTIZE_H_
#define INFINI_OPS_CUDA_QUANTIZE_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "core/geometry.h"
#include "cuda/elementwise.h"
#include "cuda/rows.h"
#include "cuda/types.h"
#include "cuda/vector.h"

// Quantization of float16, bfloat16 and float32 to int8 and float8_e4m3fn, for all operators. All
// steps are those of cpu/quantize.h, for the same bits.
namespace infini::ops::cuda {

// The bits of float8_e4m3fn. Not every vendor's compiler has the type.
struct Float8 {
  std::uint8_t bits;
};

inline constexpr float kMostFloat8 = 448;

// The sum of two integers up to this does not overflow.
inline constexpr std::int32_t kMostZeroPoint = 1 << 30;

// vLLM's least scale, that of rows of zeros.
inline constexpr float kLeastScale = 1 / (kMostFloat8 * 512);

// The least one with an inverse.
inline constexpr float kLeastNormal = std::numeric_limits<float>::min();

// The least and the most of elements, of which NaN is none.
struct Extremes {
  // A NaN fails both comparisons. fmin would return one that is signaling.
  __device__ void Add(float value) {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  __device__ bool is_empty() const { return least > most; }
  __device__ float magnitude() const { return is_empty() ? 0.0f : fmax(-least, most); }

  float least = INFINITY;
  float most = -INFINITY;
};

// How elements are quantized: multiplied by a factor or divided by it, and limited. For int8, they
// are rounded and added to the zero point before, and the limits are integers. A NaN becomes the
// zero point in int8, and stays one in float8.
struct Scaling {
  float factor;
  bool divides;
  float least;
  float most;
  std::int32_t zero_point = 0;
  float scale = 0;  // as the operator returns it
};

// A NaN stays NaN.
template <typename T>
__device__ T Limit(T value, T least, T most) {
  value = value > most ? most : value;
  return value < least ? least : value;
}

// A number up to 448, to nearest, ties to even; NaN stays NaN.
__device__ inline Float8 RoundToFloat8(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  std::uint32_t small;
  if (magnitude < 0x3C800000) {  // subnormal, a multiple of 2^-9: float addition rounds to it
    const float shifted = fabs(value) + 0x1p14f;
    memcpy(&small, &shifted, sizeof(small));
    small -= 0x46800000;  // the bits of 2^14
  } else if (magnitude > 0x7F800000) {
    small = 0x7F;
  } else {
    const std::uint32_t rounded = magnitude + 0x7FFFF + ((magnitude >> 20) & 1);
    small = (rounded - ((127 - 7) << 23)) >> 20;
  }
  return {static_cast<std::uint8_t>(small | bits >> 31 << 7)};
}

template <typename Q>
__device__ Q Quantized(float value, const Scaling& scaling) {
  value = scaling.divides ? value / scaling.factor : value * scaling.factor;
  if constexpr (std::is_same_v<Q, Float8>) {
    return RoundToFloat8(Limit(value, scaling.least, scaling.most));
  } else {
    constexpr auto limit = static_cast<float>(kMostZeroPoint);
    const float number = value == value ? Limit(value, -limit, limit) : 0.0f;
    const std::int32_t rounded = static_cast<std::int32_t>(rintf(number)) + scaling.zero_point;
    return static_cast<Q>(Limit(rounded, static_cast<std::int32_t>(scaling.least),
                                static_cast<std::int32_t>(scaling.most)));
  }
}

// Quantizes each element by the scaling that `rule` makes of numbers on the device.
template <typename T, typename Q, typename Rule>
struct QuantizeFunction {
  __device__ Q operator()(T value) const { return Quantized<Q>(static_cast<float>(value), rule()); }

  Rule rule;
};

template <typename Q, typename Rule>
void QuantizeTensor(const Invocation& invocation, const Tensor& input, const Rule& rule,
                    const Tensor& result) {
  WithSmallFloatType(input.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    RunElementwise<Q, T>(invocation, MakeGeometry(result, input),
                         QuantizeFunction<T, Q, Rule>{rule});
  });
}

// Multiplies by 1 / scale.
struct Float8Rule {
  __device__ Scaling operator()() const {
    return {1 / __ldg(scale), false, -kMostFloat8, kMostFloat8};
  }

  const float* scale;
};

// Where the operands are.
template <typename T, typename Q>
struct QuantizeOperands {
  const T* input;
  Q* result;
  float* scales;
  std::int32_t* zero_points;  // or null
};

// Quantizes each row by the scaling that `rule` makes of its range. `scale_rows` are those of the
// scales and of the zero points. Rows are read twice, the second
// time from a cache.
template <int width, typename T, typename Q, typename Rule>
__global__ void __launch_bounds__(kMaxThreads)
    QuantizeRows(const Rows rows, const Rows scale_rows, const QuantizeOperands<T, Q> operands,
                 const Rule rule) {
  __shared__ float partial[kMaxThreads / kWarpSize];
  const std::int64_t vectors = rows.size / width;
  const Row row(rows);
  const T* const input = operands.input + row.input;
  Extremes range;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto values = Load<width>(input, i, rows.input_stride);
#pragma unroll
    for (int j = 0; j < width; ++j) {
      range.Add(static_cast<float>(values.elements[j]));
    }
  }
  if constexpr (Rule::kHasZeroPoint) {
    range.least = -Maximum(-range.least, partial);
    range.most = Maximum(range.most, partial);
  } else {  // the magnitude is enough
    range.most = Maximum(range.magnitude(), partial);
    range.least = -range.most;
  }
  if (!row.is_row) return;
  const Scaling scaling = rule(range);
  if (threadIdx.x == 0) {
    const Row place(scale_rows);
    operands.scales[place.input] = scaling.scale;
    if constexpr (Rule::kHasZeroPoint) operands.zero_points[place.out] = scaling.zero_point;
  }
  Q* const result = operands.result + row.out;
  for (std::int64_t i = threadIdx.x; i < vectors; i += blockDim.x) {
    const auto values = Load<width>(input, i, rows.input_stride);
    Vector<Q, width> quantized;
#pragma unroll
    for (int j = 0; j < width; ++j) {
      quantized.elements[j] = Quantized<Q>(static_cast<float>(values.elements[j]), scaling);
    }
    Store(result, i, rows.out_stride, quantized);
  }
}

// A view with rows of `size` elements, the parts of the rows of a tensor.
inline Tensor GroupsOf(const Tensor& tensor, std::int64_t size) {
  std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  std::vector<std::int64_t> strides(tensor.strides().begin(), tensor.strides().end());
  shape.back() /= size;
  shape.push_back(size);
  strides.push_back(strides.back());
  strides[strides.size() - 2] *= size;
  return {tensor.data(), shape, strides, tensor.data_type(), tensor.device()};
}

// Quantizes each group of `size` elements in each row. `scales` and, if the rule has them,
// `zero_points` get those of the groups.
template <typename Q, typename Rule>
void QuantizeGroups(const Invocation& invocation, const Tensor& input, std::int64_t size,
                    const Rule& rule, const Tensor& result, const Tensor& scales,
                    const Tensor* zero_points = nullptr) {
  if (result.element_count() == 0) return;
  const Tensor from = GroupsOf(input, size), to = GroupsOf(result, size);
  const Tensor own = GroupsOf(scales, 1), other = GroupsOf(zero_points ? *zero_points : scales, 1);
  const Rows rows = *RowsOf(from, to);
  const Rows scale_rows = *RowsOf(own, other);
  const DeviceGuard guard(invocation.device);
  WithSmallFloatType(input.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    const QuantizeOperands<T, Q> operands{
        input.data<T>(), result.data<Q>(), scales.data<float>(),
        zero_points ? zero_points->data<std::int32_t>() : nullptr};
    const bool vectorized = IsVectorizable(from) && IsVectorizable(to, kWidth<T>);
    const LaunchShape shape = ShapeOf(rows, vectorized ? rows.size / kWidth<T> : rows.size);
    const auto kernel =
        vectorized ? QuantizeRows<kWidth<T>, T, Q, Rule> : QuantizeRows<1, T, Q, Rule>;
    Launch(kernel, shape.grid, shape.block, 0, CurrentStream(invocation), rows, scale_rows,
           operands, rule);
  });
}

// The scale with which the largest magnitude of a group, at least `eps`, becomes `most`; with
// `is_power`, the next power of two.
struct GroupRule {
  static constexpr bool kHasZeroPoint = false;

  __device__ Scaling operator()(const Extremes& range) const {
    float scale = fmax(range.magnitude(), eps) / divisor;
    if (is_power && !isinf(scale)) {
      int exponent;
      const float fraction = frexp(fmax(scale, 1e-10f), &exponent);
      scale = ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
    }
    return {scale, true, least, most, 0, scale};
  }

  float eps;
  float divisor;
  bool is_power;
  float least;
  float most;
};

// The limit of `QuantizeGroups` for parts of rows, of the size of the second argument.
inline bool HasGroupRows(const Invocation& call, std::int64_t size) {
  const Tensor scales = GroupsOf(call.tensor(call.FirstWritten() + 1), 1);
  const Argument& last = call.arguments[call.size - 1];
  const bool has_zero_points = last.tag == Argument::Tag::kTensor;
  return RowsOf(GroupsOf(call.tensor(0), size), GroupsOf(call.out(), size)) &&
         RowsOf(scales, has_zero_points ? GroupsOf(*last.As<Tensor>(), 1) : scales);
}
inline bool HasGroupRows(const Invocation& call) {
  return HasGroupRows(call, call.arguments[1].scalar.To<std::int64_t>());
}

// The same for whole rows.
inline bool HasTokenRows(const Invocation& call) {
  return HasGroupRows(call, call.tensor(0).shape()[call.tensor(0).dimensions() - 1]);
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_QUANTIZE_H_
