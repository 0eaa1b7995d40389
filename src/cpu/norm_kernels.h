// The inner loops of norm.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// The values of a row, which are read once.
template <typename T>
struct Values {
  INFINI_OPS_INLINE Vector<Computed<T>> At(std::int64_t i) const { return Load(input + i); }
  INFINI_OPS_INLINE Vector<Computed<T>> PartAt(std::int64_t i, std::int64_t count) const {
    return LoadPart(input + i, count);
  }

  const T* input;
};

// The sums of two rows, which are also stored: rounded, and as they are.
template <typename T>
struct StoredSums {
  INFINI_OPS_INLINE Vector<Computed<T>> At(std::int64_t i) const {
    const Vector<Computed<T>> sum = Load(input + i) + Load(residual + i);
    Store(rounded + i, sum);
    if constexpr (sizeof(T) == 2) Store(sums + i, sum);
    return sum;
  }
  INFINI_OPS_INLINE Vector<Computed<T>> PartAt(std::int64_t i, std::int64_t count) const {
    const Vector<Computed<T>> sum = LoadPart(input + i, count) + LoadPart(residual + i, count);
    StorePart(rounded + i, sum, count);
    if constexpr (sizeof(T) == 2) StorePart(sums + i, sum, count);
    return sum;
  }

  const T* input;
  const T* residual;
  T* rounded;
  Computed<T>* sums;
};

template <typename T, typename Source>
inline INFINI_OPS_INLINE Computed<T> SumOfBlock(const Source& source, std::int64_t begin,
                                                std::int64_t end) {
  using C = Computed<T>;
  // Several sums, because each addition waits for the one before.
  constexpr int chains = 4;
  Vector<C> sums[chains] = {};
  std::int64_t i = begin;
  for (; i + chains * kLanes<T> <= end; i += chains * kLanes<T>) {
    for (int chain = 0; chain < chains; ++chain) {
      const Vector<C> value = source.At(i + chain * kLanes<T>);
      sums[chain] += value * value;
    }
  }
  for (; i < end; i += kLanes<T>) {
    const Vector<C> value = end - i < kLanes<T> ? source.PartAt(i, end - i) : source.At(i);
    sums[0] += value * value;
  }
  return Sum<C>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// 1 / sqrt(mean(value^2) + eps). In blocks, because the error grows with the longest chain of
// additions.
template <typename T, typename Source>
inline INFINI_OPS_INLINE Computed<T> ScaleOf(const Source& source, std::int64_t count, double eps) {
  using C = Computed<T>;
  constexpr std::int64_t block = 1024;
  C sum = 0;
  std::int64_t begin = 0;
  for (; count - begin > block; begin += block) sum += SumOfBlock<T>(source, begin, begin + block);
  sum += SumOfBlock<T>(source, begin, count);
  return 1 / std::sqrt(sum / static_cast<C>(count) + static_cast<C>(eps));
}

template <typename V, typename W, typename T>
inline INFINI_OPS_INLINE void ScaleRow(const V* values, Computed<T> scale, const W* weight,
                                       std::int64_t count, T* out) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Store(out + i, Load(values + i) * scale * Load(weight + i));
  }
  if (i < count) {
    const Vector<Computed<T>> value =
        LoadPart(values + i, count - i) * scale * LoadPart(weight + i, count - i);
    StorePart(out + i, value, count - i);
  }
}

// One row of contiguous elements.
template <typename T, typename W>
void RmsNormRow(const void* const* inputs, const void* weights, std::int64_t count, double eps,
                void* const* outs, void*) {
  const T* const input = static_cast<const T*>(inputs[0]);
  const Computed<T> scale = ScaleOf<T>(Values<T>{input}, count, eps);
  ScaleRow(input, scale, static_cast<const W*>(weights), count, static_cast<T*>(outs[0]));
}

// The same of the sums of two rows. `sums` is a row of
// float32, which float32 itself does not need.
template <typename T, typename W>
void AddRmsNormRow(const void* const* inputs, const void* weights, std::int64_t count, double eps,
                   void* const* outs, void* sums) {
  using C = Computed<T>;
  const StoredSums<T> source{static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]),
                             static_cast<T*>(outs[1]),
                             static_cast<C*>(sizeof(T) == 2 ? sums : outs[1])};
  const C scale = ScaleOf<T>(source, count, eps);
  ScaleRow(source.sums, scale, static_cast<const W*>(weights), count, static_cast<T*>(outs[0]));
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
