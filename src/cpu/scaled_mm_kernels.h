// The inner loop of scaled_mm.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename T, typename S>
INFINI_OPS_INLINE inline void ScaleSums(const S* sums, std::int64_t count, float row_scale,
                                        const float* scales, const T* bias, T* out) {
  for (std::int64_t i = 0; i < count; i += kLanes<T>) {
    const std::int64_t part = count - i;
    const bool is_part = part < kLanes<T>;
    Vector<float> sum;
    if constexpr (std::is_integral_v<S>) {
      const Words words = is_part ? LoadPart(sums + i, part) : Load(sums + i);
      sum = __builtin_convertvector(reinterpret_cast<Integers>(words), Vector<float>);
    } else {
      sum = is_part ? LoadPart(sums + i, part) : Load(sums + i);
    }
    Vector<float> value = sum * (is_part ? LoadPart(scales + i, part) : Load(scales + i));
    value *= row_scale;
    if (bias) value += is_part ? LoadPart(bias + i, part) : Load(bias + i);
    if (is_part) {
      StorePart(out + i, value, part);
    } else {
      Store(out + i, value);
    }
  }
}

// One row of `out` from its sums, in float or in std::int32_t.
template <typename T>
void ScaleRow(const void* sums, bool are_integers, std::int64_t count, float row_scale,
              const float* scales, const void* bias, void* out) {
  const T* const added = static_cast<const T*>(bias);
  T* const target = static_cast<T*>(out);
  if (are_integers) {
    ScaleSums(static_cast<const std::int32_t*>(sums), count, row_scale, scales, added, target);
  } else {
    ScaleSums(static_cast<const float*>(sums), count, row_scale, scales, added, target);
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
