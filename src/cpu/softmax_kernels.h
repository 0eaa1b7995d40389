// The inner loops of softmax.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Loads the elements of a row of `size` from `begin` on, times `sign`. Lanes that are not among the
// first `visible` elements are -infinity.
template <typename T>
inline INFINI_OPS_INLINE Vector<Computed<T>> LoadVisible(const T* row, std::int64_t begin,
                                                         std::int64_t visible, std::int64_t size,
                                                         Computed<T> sign) {
  using C = Computed<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  const std::int64_t count = visible - begin;
  // The memory after the visible elements is readable, too.
  const Vector<C> value =
      size - begin < kLanes<T> ? LoadPart(row + begin, count) : Load(row + begin);
  return KeepFirst<C>(value * sign, count, lowest);
}

// A NaN can be lost here, but it reappears in the sum.
template <typename T>
inline INFINI_OPS_INLINE Computed<T> LargestVisible(const T* row, std::int64_t visible,
                                                    std::int64_t size, Computed<T> sign) {
  using C = Computed<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  // Several maxima, because each comparison waits for the one before.
  Vector<C> largest[4] = {Vector<C>{} + lowest, Vector<C>{} + lowest, Vector<C>{} + lowest,
                          Vector<C>{} + lowest};
  std::int64_t i = 0;
  for (; i + 4 * kLanes<T> <= visible; i += 4 * kLanes<T>) {
#pragma GCC unroll 4
    for (int chain = 0; chain < 4; ++chain) {
      largest[chain] = Max<C>(Load(row + i + chain * kLanes<T>) * sign, largest[chain]);
    }
  }
  for (; i + kLanes<T> <= visible; i += kLanes<T>)
    largest[0] = Max<C>(Load(row + i) * sign, largest[0]);
  if (i < visible) largest[1] = Max<C>(LoadVisible(row, i, visible, size, sign), largest[1]);
  return Largest<C>(Max<C>(Max<C>(largest[0], largest[1]), Max<C>(largest[2], largest[3])));
}

// Softmax of the first `visible` elements of a row of `size` contiguous ones, times `factor`; the
// results after them can be overwritten. `scratch` has room for a row of whole vectors.
template <typename T>
void SoftmaxRow(const void* elements, std::int64_t visible, std::int64_t size, double factor,
                void* scratch, void* results) {
  using C = Computed<T>;
  const T* const row = static_cast<const T*>(elements);
  C* const powers = static_cast<C*>(scratch);
  T* const out = static_cast<T*>(results);
  // The differences are multiplied, not the elements: products that are rounded only before the
  // comparison could exceed the largest one. With a factor of 0 all elements are multiplied by 0.
  const C scale = static_cast<C>(factor);
  const C sign = scale < 0 ? C{-1} : scale == 0 ? C{0} : C{1};
  const C magnitude = scale == 0 ? C{1} : scale * sign;
  const C largest = LargestVisible(row, visible, size, sign);
  Vector<C> sum = {};
  std::int64_t i = 0;
  for (; i + kLanes<T> <= visible; i += kLanes<T>) {
    const Vector<C> power = Exp<C>((Load(row + i) * sign - largest) * magnitude);
    Store(powers + i, power);
    sum += power;
  }
  if (i < visible) {
    // If all visible elements are -infinity, every lane is NaN, and so is the sum.
    const Vector<C> rest = LoadVisible(row, i, visible, size, sign) - largest;
    const Vector<C> power = Exp<C>(rest * magnitude);
    Store(powers + i, power);
    sum += power;
  }
  const C share = 1 / Sum<C>(sum);
  for (i = 0; i < visible && i + kLanes<T> <= size; i += kLanes<T>) {
    Store(out + i, Load(powers + i) * share);
  }
  if (i < visible) StorePart(out + i, Load(powers + i) * share, visible - i);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
