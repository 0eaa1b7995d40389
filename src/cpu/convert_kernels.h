// The conversions of convert.cc that the compiler can't vectorize, once per instruction set: see
// for_each_isa.h.

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

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
