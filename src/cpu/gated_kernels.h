// The inner loops of gated.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// value * sigmoid(exponent), from the exponential that is at most 1.
template <typename C>
inline INFINI_OPS_INLINE Vector<C> TimesSigmoid(Vector<C> value, Vector<C> exponent) {
  const Vector<C> power = Exp<C>(exponent < -exponent ? exponent : -exponent);
  const Vector<C> one = Vector<C>{} + 1;
  return value * (exponent < 0 ? power : one) / (one + power);
}

// x * (1 + erf(x / sqrt(2))) / 2, which is x times the normal distribution function. For negative
// x, the sum of 1 and erf would cancel: this computes the tail itself, erfc(|x| / sqrt(2)) / 2, as
// exp(-x^2 / 2) times a quotient of polynomials. Their coefficients are those of the smallest
// relative error for 0 <= x <= 15, of which the last one was rounded to float32 first, and the
// others fitted again: 0.2 units in the last place. All are positive, so that no sum cancels.
// With the rounding of all steps, the result is within 4 units in the last place.
inline INFINI_OPS_INLINE Vector<float> Gelu(Vector<float> x) {
  constexpr float numerator[] = {0x1p-1f, 0x1.c1091ap-2f, 0x1.778a26p-3f, 0x1.4d2c7ap-5f,
                                 0x1.0dfa7ap-8f};
  constexpr float denominator[] = {1.0f,           0x1.acc6bcp+0f, 0x1.33ff72p+0f,
                                   0x1.e117b2p-2f, 0x1.a198d6p-4f, 0x1.525d3p-7f};
  constexpr float last = 15;  // the tail is 0 in float32 from 14.2 on
  Vector<float> z = x < 0 ? -x : x;
  z = z > last ? Vector<float>{} + last : z;  // a NaN stays NaN
  // What the square loses by rounding would be up to 100 units of the exponential.
  const Words bits = reinterpret_cast<Words>(z) & 0xFFFFF000u;
  const Vector<float> upper = reinterpret_cast<Vector<float>>(bits);
  const Vector<float> square = z * z;
  const Vector<float> lost = (upper * upper - square) + (z - upper) * (upper + z);
  Vector<float> power = Exp<float>(square * -0.5f);
  power -= power * (lost * 0.5f);
  Vector<float> over = Vector<float>{} + numerator[4];
  Vector<float> under = Vector<float>{} + denominator[5];
  under = under * z + denominator[4];
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) {
    over = over * z + numerator[i];
    under = under * z + denominator[i];
  }
  const Vector<float> tail = power * over / under;
  return x * (x < 0 ? tail : 1 - tail);
}

// x * (1 + tanh(y)) / 2 with y = sqrt(2 / pi) * (x + 0.044715 * x^3): the same as x * sigmoid(2 y),
// without a sum that cancels.
inline INFINI_OPS_INLINE Vector<float> GeluTanh(Vector<float> x) {
  constexpr double factor = 1.5957691216057308;  // 2 * sqrt(2 / pi)
  constexpr auto linear = static_cast<float>(factor);
  constexpr auto cubic = static_cast<float>(factor * 0.044715);
  return TimesSigmoid<float>(x, x * (x * x * cubic + linear));
}

template <Activation activation, typename C>
struct GatedBy {
  INFINI_OPS_INLINE Vector<C> operator()(Vector<C> input, Vector<C> gate) const {
    if constexpr (activation == Activation::kGelu) return input * Gelu(gate);
    if constexpr (activation == Activation::kGeluTanh) return input * GeluTanh(gate);
    if constexpr (activation == Activation::kSilu) return input * TimesSigmoid<C>(gate, gate);
  }
};

template <typename T, Activation activation>
void GatedElements(const void* input, const void* gate, void* out, std::int64_t count,
                   const void*) {
  Map(static_cast<const T*>(input), static_cast<const T*>(gate), static_cast<T*>(out), count,
      GatedBy<activation, Computed<T>>{});
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
