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
// x the sum of 1 and erf would cancel, so that this computes the tail itself. The result is within
// 7 units in the last place of float32, until it is subnormal.
inline INFINI_OPS_INLINE Vector<float> Gelu(Vector<float> x) {
  using K = NormalTail;
  Vector<float> z = x < 0 ? -x : x;
  z = z > K::last ? Vector<float>{} + K::last : z;  // a NaN stays NaN
  // What the square loses by rounding would be up to 100 units of the exponential.
  const Words bits = reinterpret_cast<Words>(z) & 0xFFFFF000u;
  const Vector<float> upper = reinterpret_cast<Vector<float>>(bits);
  const Vector<float> square = z * z;
  const Vector<float> lost = (upper * upper - square) + (z - upper) * (upper + z);
  Vector<float> power = Exp<float>(square * -0.5f);
  power -= power * (lost * 0.5f);
  Vector<float> over = Vector<float>{} + K::numerator[4];
  Vector<float> under = Vector<float>{} + K::denominator[5];
  under = under * z + K::denominator[4];
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) {
    over = over * z + K::numerator[i];
    under = under * z + K::denominator[i];
  }
  const Vector<float> tail = power * over / under;
  return x * (x < 0 ? tail : 1 - tail);
}

inline INFINI_OPS_INLINE Vector<float> GeluTanh(Vector<float> x) {
  return TimesSigmoid<float>(x, x * (x * x * TanhOfGelu::cubic + TanhOfGelu::linear));
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
