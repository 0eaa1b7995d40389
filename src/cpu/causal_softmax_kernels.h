// The inner loops of softmax.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Loads the elements of a row of `size` from `begin` on. Lanes that are not among the first
// `visible` elements are -infinity.
template <typename T>
inline INFINI_OPS_INLINE Vector<Computed<T>> LoadVisible(const T* row, std::int64_t begin,
                                                         std::int64_t visible, std::int64_t size) {
  using C = Computed<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  const std::int64_t count = visible - begin;
  if (size - begin < kLanes<T>) return LoadPart(row + begin, count, lowest);
  // The memory after the visible elements is readable, too.
  return KeepFirst<C>(Load(row + begin), count, lowest);
}

// A NaN can be lost here, but it reappears in the sum.
template <typename T>
inline INFINI_OPS_INLINE Computed<T> LargestVisible(const T* row, std::int64_t visible,
                                                    std::int64_t size) {
  using C = Computed<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  // Several maxima, because each comparison waits for the one before.
  Vector<C> largest[4] = {Vector<C>{} + lowest, Vector<C>{} + lowest, Vector<C>{} + lowest,
                          Vector<C>{} + lowest};
  std::int64_t i = 0;
  for (; i + 4 * kLanes<T> <= visible; i += 4 * kLanes<T>) {
#pragma GCC unroll 4
    for (int chain = 0; chain < 4; ++chain) {
      largest[chain] = Max<C>(Load(row + i + chain * kLanes<T>), largest[chain]);
    }
  }
  for (; i + kLanes<T> <= visible; i += kLanes<T>) largest[0] = Max<C>(Load(row + i), largest[0]);
  if (i < visible) largest[1] = Max<C>(LoadVisible(row, i, visible, size), largest[1]);
  return Largest<C>(Max<C>(Max<C>(largest[0], largest[1]), Max<C>(largest[2], largest[3])));
}

// Processes the first `visible` elements of a row of `size` contiguous ones; the results after them
// can be overwritten. `scratch` has room for a row of whole vectors.
template <typename T>
void SoftmaxRow(const void* elements, std::int64_t visible, std::int64_t size, void* scratch,
                void* results) {
  using C = Computed<T>;
  const T* const row = static_cast<const T*>(elements);
  C* const powers = static_cast<C*>(scratch);
  T* const out = static_cast<T*>(results);
  const C largest = LargestVisible(row, visible, size);
  Vector<C> sum = {};
  std::int64_t i = 0;
  for (; i + kLanes<T> <= visible; i += kLanes<T>) {
    const Vector<C> power = Exp<C>(Load(row + i) - largest);
    Store(powers + i, power);
    sum += power;
  }
  if (i < visible) {
    // If all visible elements are -infinity, every lane is NaN, and so is the sum.
    const Vector<C> power = Exp<C>(LoadVisible(row, i, visible, size) - largest);
    Store(powers + i, power);
    sum += power;
  }
  const C scale = 1 / Sum<C>(sum);
  for (i = 0; i < visible && i + kLanes<T> <= size; i += kLanes<T>) {
    Store(out + i, Load(powers + i) * scale);
  }
  if (i < visible) StorePart(out + i, Load(powers + i) * scale, visible - i);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
