#ifndef INFINI_OPS_CPU_QUANTIZE_H_
#define INFINI_OPS_CPU_QUANTIZE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/function_ref.h"
#include "infini/ops/tensor.h"

// Quantization of float16, bfloat16 and float32 to int8 and float8_e4m3fn, for all operators.
namespace infini::ops::cpu {

// The least and the most of elements, of which NaN is none.
struct Extremes {
  bool is_empty() const { return least > most; }
  float magnitude() const { return is_empty() ? 0 : std::max(-least, most); }

  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();
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

inline constexpr float kMostFloat8 = 448;

// The sum of two integers up to this does not overflow.
inline constexpr std::int32_t kMostZeroPoint = 1 << 30;

// vLLM's least scale, that of rows of zeros.
inline constexpr float kLeastScale = 1 / (kMostFloat8 * 512);

// The scale with which the largest magnitude of a group, at least `eps`, becomes `most`; with
// `is_power`, the next power of two.
inline float GroupScale(const Extremes& range, double eps, double most, bool is_power) {
  const float scale =
      std::max(range.magnitude(), static_cast<float>(eps)) / static_cast<float>(most);
  if (!is_power || std::isinf(scale)) return scale;
  int exponent;
  const float fraction = std::frexp(std::max(scale, 1e-10f), &exponent);
  return std::ldexp(1.0f, fraction == 0.5f ? exponent - 1 : exponent);
}

// Quantizes all elements by one scaling. `result` has the type that decides what they become.
void QuantizeTensor(const Tensor& input, const Scaling& scaling, const Tensor& result);

// The range of all elements.
Extremes ExtremesOf(const Tensor& input);

// Quantizes each group of `size` elements in each row by the scaling that `rule` returns for their
// range. `scales` and, unless it is null, `zero_points` get those of the groups.
void QuantizeGroups(const Tensor& input, std::int64_t size,
                    FunctionRef<Scaling(const Extremes& range)> rule, const Tensor& result,
                    const Tensor& scales, const Tensor* zero_points = nullptr);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_QUANTIZE_H_
