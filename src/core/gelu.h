#ifndef INFINI_OPS_CORE_GELU_H_
#define INFINI_OPS_CORE_GELU_H_

// The numbers of the two forms of gelu, for all backends. Triton's kernels have a copy.
namespace infini::ops {

// erfc(x / sqrt(2)) / 2 = exp(-x^2 / 2) * numerator(x) / denominator(x) for 0 <= x <= 15, the tail
// of the normal distribution. A fit of the smallest relative error, computed for this library:
// one coefficient after the other was rounded to float32, and the rest fitted again. The error is
// 0.2 units of float32 in the last place. All coefficients are positive, so that no sum cancels.
struct NormalTail {
  static constexpr float numerator[] = {0x1p-1f, 0x1.c1091ap-2f, 0x1.778a26p-3f, 0x1.4d2c7ap-5f,
                                        0x1.0dfa7ap-8f};
  static constexpr float denominator[] = {0x1p+0f,        0x1.acc6bcp+0f, 0x1.33ff72p+0f,
                                          0x1.e117b2p-2f, 0x1.a198d6p-4f, 0x1.525d3p-7f};
  static constexpr float last = 15;  // the tail is 0 in float32 from 14.2 on
};

// x * (1 + tanh(y)) / 2 = x * sigmoid(2 * y), and 2 * y = x * (linear + cubic * x^2).
struct TanhOfGelu {
  static constexpr double factor = 1.5957691216057308;  // 2 * sqrt(2 / pi)
  static constexpr auto linear = static_cast<float>(factor);
  static constexpr auto cubic = static_cast<float>(factor * 0.044715);
};

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_GELU_H_
