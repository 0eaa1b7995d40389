// The exponential function for vectors of one instruction set: for_each_isa.h includes it.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename C>
struct ExpConstants;
// ln(2) in two parts, so that the product of the first part with a whole number is exact.
template <>
struct ExpConstants<float> {
  using Bits = std::uint32_t;
  static constexpr float ln2 = 0.693359375f, ln2_rest = -2.12194440e-4f;
  static constexpr float lowest = -104;  // exp is 0 below it
  static constexpr int mantissa = 23, bias = 127, terms = 7;
};
template <>
struct ExpConstants<double> {
  using Bits = std::uint64_t;
  static constexpr double ln2 = 0x1.62e42feep-1, ln2_rest = 0x1.a39ef35793c76p-33;
  static constexpr double lowest = -746;
  static constexpr int mantissa = 52, bias = 1023, terms = 13;
};

// 1 / (1 * 2 * ... * n) for each n. A table, because GCC leaves calls of a function in the loops.
struct Reciprocals {
  constexpr Reciprocals() {
    for (int n = 1; n <= ExpConstants<double>::terms; ++n) values[n] = values[n - 1] / n;
  }
  double values[ExpConstants<double>::terms + 1] = {1};
};
inline constexpr Reciprocals kReciprocals;

// std::exp of lanes that are not positive. In float32 the error is at most 1 unit in the last
// place, also for subnormal results.
template <typename C>
inline INFINI_OPS_INLINE Vector<C> Exp(Vector<C> x) {
  using K = ExpConstants<C>;
  using Bits = Vector<typename K::Bits>;
  // Comparisons with NaN are false, so a NaN stays NaN.
  x = Max<C>(Vector<C>{} + K::lowest, x);
  // Adding this number leaves in the lowest bits the nearest whole number, plus the bias and
  // `raise`.
  constexpr int raise = 64;
  constexpr C magic = static_cast<C>((3ll << (K::mantissa - 1)) + K::bias + raise);
  const Vector<C> shifted = x * static_cast<C>(1.4426950408889634) + magic;
  const Vector<C> whole = shifted - magic;
  const Vector<C> rest = (x - whole * K::ln2) - whole * K::ln2_rest;
  // Taylor polynomial; the truncation error is below 0.1 units in the last place of 1.
  Vector<C> value = Vector<C>{} + static_cast<C>(kReciprocals.values[K::terms]);
#pragma GCC unroll 13
  for (int i = K::terms - 1; i >= 0; --i) {
    value = value * rest + static_cast<C>(kReciprocals.values[i]);
  }
  // In two steps, because the exponent of 2^-149 is out of range: 2^(whole + raise) is not.
  const Bits power = reinterpret_cast<Bits>(shifted) << K::mantissa;
  return value * reinterpret_cast<Vector<C>>(power) * static_cast<C>(0x1p-64);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
