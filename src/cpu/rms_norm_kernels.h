// The inner loops of rms_norm.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename T>
inline INFINI_OPS_INLINE Computed<T> SumOfBlock(const T* input, std::int64_t count) {
  using C = Computed<T>;
  // Several sums, because each addition waits for the one before.
  constexpr int chains = 4;
  Vector<C> sums[chains] = {};
  std::int64_t i = 0;
  for (; i + chains * kLanes<T> <= count; i += chains * kLanes<T>) {
    for (int chain = 0; chain < chains; ++chain) {
      const Vector<C> value = Load(input + i + chain * kLanes<T>);
      sums[chain] += value * value;
    }
  }
  for (; i < count; i += kLanes<T>) {
    const Vector<C> value =
        count - i < kLanes<T> ? LoadPart(input + i, count - i) : Load(input + i);
    sums[0] += value * value;
  }
  return Sum<C>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// In blocks, because the error grows with the longest chain of additions.
template <typename T>
inline INFINI_OPS_INLINE Computed<T> SumOfSquares(const T* input, std::int64_t count) {
  constexpr std::int64_t block = 1024;
  Computed<T> sum = 0;
  for (; count > block; count -= block, input += block) sum += SumOfBlock(input, block);
  return sum + SumOfBlock(input, count);
}

// One row of contiguous elements.
template <typename T, typename W>
void RmsNormRow(const void* elements, const void* weights, std::int64_t count, double eps,
                void* results) {
  using C = Computed<T>;
  const T* const input = static_cast<const T*>(elements);
  const W* const weight = static_cast<const W*>(weights);
  T* const out = static_cast<T*>(results);
  const C mean = SumOfSquares(input, count) / static_cast<C>(count);
  const C scale = 1 / std::sqrt(mean + static_cast<C>(eps));
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Store(out + i, Load(input + i) * scale * Load(weight + i));
  }
  if (i < count) {
    const Vector<C> value =
        LoadPart(input + i, count - i) * scale * LoadPart(weight + i, count - i);
    StorePart(out + i, value, count - i);
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
