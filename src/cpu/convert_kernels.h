// The conversions of convert.cc that the compiler can't vectorize, or that need a large instruction
// set to be fast, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Float16 or BFloat16 to float.
template <typename T>
void Widen(const void* from, void* to, std::int64_t count) {
  const T* const halves = static_cast<const T*>(from);
  float* const floats = static_cast<float*>(to);
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) Store(floats + i, Load(halves + i));
  if (i < count) StorePart(floats + i, LoadPart(halves + i, count - i), count - i);
}

// Float to Float16 or BFloat16.
template <typename T>
void Narrow(const void* from, void* to, std::int64_t count) {
  const float* const floats = static_cast<const float*>(from);
  T* const halves = static_cast<T*>(to);
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) Store(halves + i, Load(floats + i));
  if (i < count) StorePart(halves + i, LoadPart(floats + i, count - i), count - i);
}

// std::int32_t to a larger or smaller integer.
template <typename To>
void ConvertInt32(const void* from, void* to, std::int64_t count) {
  const std::int32_t* const source = static_cast<const std::int32_t*>(from);
  To* const target = static_cast<To*>(to);
  INFINI_OPS_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) target[i] = static_cast<To>(source[i]);
}

// Truncates float or double to std::int32_t. Returns false if that can't hold one of them, or if
// one is NaN: what was written is then unspecified. As integers, magnitudes have the order of the
// numbers: adding a constant sets the sign bit of those that are too large.
template <typename From>
bool TruncateSmall(const void* from, void* to, std::int64_t count) {
  using Bits = std::conditional_t<sizeof(From) == 8, std::uint64_t, std::uint32_t>;
  constexpr From limit = 0x1p31f;
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  Bits too_large;
  std::memcpy(&too_large, &limit, sizeof(too_large));
  const From* const floats = static_cast<const From*>(from);
  std::int32_t* const integers = static_cast<std::int32_t*>(to);
  // Where one number is too large, such as a time in nanoseconds, most of them are.
  if (count > 0 && !(-limit < floats[0] && floats[0] < limit)) return false;
  Bits found = 0;
  INFINI_OPS_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, floats + i, sizeof(bits));
    found |= (bits & ~sign) + (sign - too_large);
    integers[i] = static_cast<std::int32_t>(floats[i]);
  }
  return !(found & sign);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
