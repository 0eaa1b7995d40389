#ifndef INFINI_OPS_CUDA_GATED_H_
#define INFINI_OPS_CUDA_GATED_H_

#include <cmath>

#include "core/gelu.h"
#include "core/halves.h"
#include "cuda/elementwise.h"
#include "cuda/types.h"

// input * activation(gate), by the activation. For 16-bit floats within a few units of float32: the
// exact functions take longer than the memory does.
namespace infini::ops::cuda {

// value * sigmoid(exponent).
template <typename T>
__device__ Computed<T> TimesSigmoid(Computed<T> value, Computed<T> exponent) {
  if constexpr (sizeof(T) == 2) {
    const float small = __expf(-fabs(exponent));
    return value * __fdividef(exponent < 0 ? small : 1.0f, 1.0f + small);
  } else {
    return value / (Computed<T>{1} + std::exp(-exponent));
  }
}

template <typename T>
struct SiluFunction {
  using C = Computed<T>;

  __device__ T operator()(T input, T gate) const {
    const auto x = static_cast<C>(gate);
    return static_cast<T>(static_cast<C>(input) * TimesSigmoid<T>(x, x));
  }
};

template <typename T>
struct GeluFunction {
  __device__ T operator()(T input, T gate) const {
    return static_cast<T>(static_cast<float>(input) * Gelu(static_cast<float>(gate)));
  }

  // From the tail of the normal distribution: for negative x, a sum of 1 and erf would cancel.
  static __device__ float Gelu(float x) {
    constexpr NormalTail k;
    // Comparisons with NaN are false, so a NaN stays NaN.
    const float z = fabs(x) > k.last ? k.last : fabs(x);
    const float over =
        k.numerator[0] +
        z * (k.numerator[1] + z * (k.numerator[2] + z * (k.numerator[3] + z * k.numerator[4])));
    const float under =
        k.denominator[0] +
        z * (k.denominator[1] +
             z * (k.denominator[2] +
                  z * (k.denominator[3] + z * (k.denominator[4] + z * k.denominator[5]))));
    const float exponent = -0.5f * z * z;
    float tail;
    if constexpr (sizeof(T) == 2) {
      tail = __expf(exponent) * __fdividef(over, under);
    } else {
      tail = std::exp(exponent) * (over / under);
    }
    return x * (x < 0 ? tail : 1.0f - tail);
  }
};

template <typename T>
struct GeluTanhFunction {
  __device__ T operator()(T input, T gate) const {
    const auto x = static_cast<float>(gate);
    const float exponent = x * (x * x * TanhOfGelu::cubic + TanhOfGelu::linear);
    return static_cast<T>(static_cast<float>(input) * TimesSigmoid<T>(x, exponent));
  }
};

// out = activation(first) * second, of the halves of the input's last dimension.
template <template <typename> class Function>
void RunGatedHalves(const Invocation& invocation, const Tensor& input, const Tensor& out) {
  const Halves halves(input, out);
  WithFloatType(out.data_type(), [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    if constexpr (!std::is_same_v<T, double>) {
      RunElementwise<T, T>(invocation, MakeGeometry(out, halves.second, halves.first),
                           Function<T>());
    }
  });
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_GATED_H_
