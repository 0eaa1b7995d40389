// The inner loops of quantize.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// A NaN fails each comparison, and keeps the range.
inline INFINI_OPS_INLINE void Extend(Vector<float> value, Vector<float>* least,
                                     Vector<float>* most) {
  *least = value < *least ? value : *least;
  *most = value > *most ? value : *most;
}

struct Smaller {
  template <typename V>
  INFINI_OPS_INLINE V operator()(V a, V b) const {
    return a < b ? a : b;
  }
};

// Extends a range by contiguous elements.
template <typename T>
void ExtendExtremes(const void* input, std::int64_t count, Extremes* range) {
  constexpr float none = std::numeric_limits<float>::quiet_NaN();
  const T* const elements = static_cast<const T*>(input);
  // Two chains of comparisons, which each wait for the one before.
  Vector<float> least[2] = {Vector<float>{} + range->least, Vector<float>{} + range->least};
  Vector<float> most[2] = {Vector<float>{} + range->most, Vector<float>{} + range->most};
  std::int64_t i = 0;
  for (; i + 2 * kLanes<T> <= count; i += 2 * kLanes<T>) {
    const Pair<T> pair = LoadPair(elements + i);
    Extend(pair.first, &least[0], &most[0]);
    Extend(pair.second, &least[1], &most[1]);
  }
  for (; i < count; i += kLanes<T>) {
    const bool is_part = count - i < kLanes<T>;
    const Vector<float> value =
        is_part ? LoadPart(elements + i, count - i, none) : Load(elements + i);
    Extend(value, &least[0], &most[0]);
  }
  range->least = Fold<float>(least[0] < least[1] ? least[0] : least[1], Smaller());
  range->most = Largest<float>(Max<float>(most[0], most[1]));
}

// To nearest, ties to even. Not by adding 2^23: the compilers would round the sum with a product
// once.
inline INFINI_OPS_INLINE Integers RoundToIntegers(Vector<float> value) {
#if INFINI_OPS_VECTOR_BYTES == 64
  constexpr int all_lanes = 0xFFFF;
  constexpr int current_rounding = 4;
  return reinterpret_cast<Integers>(
      __builtin_ia32_cvtps2dq512_mask(value, Integers{}, all_lanes, current_rounding));
#elif INFINI_OPS_VECTOR_BYTES == 32
  return reinterpret_cast<Integers>(__builtin_ia32_cvtps2dq256(value));
#elif defined(__aarch64__)
  return reinterpret_cast<Integers>(vcvtnq_s32_f32(value));
#else
  return reinterpret_cast<Integers>(__builtin_ia32_cvtps2dq(value));
#endif
}

template <typename V, typename T>
inline INFINI_OPS_INLINE V Limit(V value, T least, T most) {
  value = value > most ? V{} + most : value;  // a NaN stays NaN
  return value < least ? V{} + least : value;
}

template <typename Q>
inline INFINI_OPS_INLINE Vector<Computed<Q>> QuantizeVector(Vector<float> value,
                                                            const Scaling& scaling) {
  value = scaling.divides ? value / scaling.factor : value * scaling.factor;
  if constexpr (std::is_integral_v<Q>) {
    constexpr auto limit = static_cast<float>(kMostZeroPoint);
    value = Limit(value == value ? value : Vector<float>{}, -limit, limit);
    const Integers rounded = RoundToIntegers(value) + scaling.zero_point;
    return reinterpret_cast<Words>(Limit(rounded, static_cast<std::int32_t>(scaling.least),
                                         static_cast<std::int32_t>(scaling.most)));
  } else {
    return Limit(value, scaling.least, scaling.most);
  }
}

// Quantizes contiguous elements.
template <typename T, typename Q>
void Quantize(const void* input, void* result, std::int64_t count, const Scaling& scaling) {
  const T* const elements = static_cast<const T*>(input);
  Q* const quantized = static_cast<Q*>(result);
  const Scaling own = scaling;  // `result` cannot alias it
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Store(quantized + i, QuantizeVector<Q>(Load(elements + i), own));
  }
  if (i < count) {
    StorePart(quantized + i, QuantizeVector<Q>(LoadPart(elements + i, count - i), own), count - i);
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
