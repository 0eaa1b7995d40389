// The inner loops of norm.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Two vectors of elements, whose lanes are in the order of `LoadPair<T>` if all rows are of one
// type; a wider weight needs the order of the elements.
template <typename T, typename W>
struct Pairs {
  static constexpr bool in_order = !std::is_same_v<T, W>;

  template <typename E>
  static INFINI_OPS_INLINE Pair<T> Read(const E* row) {
    if constexpr (in_order || !std::is_same_v<E, T>) {
      return {Load(row), Load(row + kLanes<T>)};
    } else {
      const Pair<E> pair = LoadPair(row);
      return {pair.first, pair.second};
    }
  }

  static INFINI_OPS_INLINE void Write(T* row, const Pair<T>& pair) {
    if constexpr (in_order) {
      Store(row, pair.first);
      Store(row + kLanes<T>, pair.second);
    } else {
      StorePair(row, pair);
    }
  }
};

// The values of a row, which are read once.
template <typename T, typename W>
struct Values {
  INFINI_OPS_INLINE Pair<T> PairAt(std::int64_t i) const { return Pairs<T, W>::Read(input + i); }
  INFINI_OPS_INLINE Vector<Computed<T>> At(std::int64_t i) const { return Load(input + i); }
  INFINI_OPS_INLINE Vector<Computed<T>> PartAt(std::int64_t i, std::int64_t count) const {
    return LoadPart(input + i, count);
  }

  const T* input;
};

// The sums of two rows, which are also stored: rounded, and as they are.
template <typename T, typename W>
struct StoredSums {
  INFINI_OPS_INLINE Pair<T> PairAt(std::int64_t i) const {
    const Pair<T> a = Pairs<T, W>::Read(input + i);
    const Pair<T> b = Pairs<T, W>::Read(residual + i);
    const Pair<T> sum = {a.first + b.first, a.second + b.second};
    Pairs<T, W>::Write(rounded + i, sum);
    if constexpr (sizeof(T) == 2) {
      Store(sums + i, sum.first);
      Store(sums + i + kLanes<T>, sum.second);
    }
    return sum;
  }
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

// `begin` is a multiple of two vectors.
template <typename T, typename Source>
inline INFINI_OPS_INLINE Computed<T> SumOfBlock(const Source& source, std::int64_t begin,
                                                std::int64_t end) {
  using C = Computed<T>;
  constexpr std::int64_t step = 2 * kLanes<T>;
  // Several sums, because each addition waits for the one before.
  Vector<C> sums[4] = {};
  std::int64_t i = begin;
  for (; i + 2 * step <= end; i += 2 * step) {
    const Pair<T> a = source.PairAt(i);
    const Pair<T> b = source.PairAt(i + step);
    sums[0] += a.first * a.first;
    sums[1] += a.second * a.second;
    sums[2] += b.first * b.first;
    sums[3] += b.second * b.second;
  }
  if (i + step <= end) {
    const Pair<T> a = source.PairAt(i);
    sums[0] += a.first * a.first;
    sums[1] += a.second * a.second;
    i += step;
  }
  for (; i < end; i += kLanes<T>) {
    const Vector<C> value = end - i < kLanes<T> ? source.PartAt(i, end - i) : source.At(i);
    sums[2] += value * value;
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
  for (std::int64_t begin = 0; begin < count; begin += block) {
    sum += SumOfBlock<T>(source, begin, count - begin < block ? count : begin + block);
  }
  return 1 / std::sqrt(sum / static_cast<C>(count) + static_cast<C>(eps));
}

template <typename V, typename W, typename T>
inline INFINI_OPS_INLINE void ScaleRow(const V* values, Computed<T> scale, const W* weight,
                                       std::int64_t count, T* out) {
  constexpr std::int64_t step = 2 * kLanes<T>;
  std::int64_t i = 0;
  for (; i + step <= count; i += step) {
    const Pair<T> value = Pairs<T, W>::Read(values + i);
    const Pair<T> factor = Pairs<T, W>::Read(weight + i);
    Pairs<T, W>::Write(out + i,
                       {value.first * scale * factor.first, value.second * scale * factor.second});
  }
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
  const Computed<T> scale = ScaleOf<T>(Values<T, W>{input}, count, eps);
  ScaleRow(input, scale, static_cast<const W*>(weights), count, static_cast<T*>(outs[0]));
}

// The same of the sums of two rows. `sums` is a row of float32, which float32 itself does not need.
template <typename T, typename W>
void AddRmsNormRow(const void* const* inputs, const void* weights, std::int64_t count, double eps,
                   void* const* outs, void* sums) {
  using C = Computed<T>;
  const StoredSums<T, W> source{static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]),
                                static_cast<T*>(outs[1]),
                                static_cast<C*>(sizeof(T) == 2 ? sums : outs[1])};
  const C scale = ScaleOf<T>(source, count, eps);
  ScaleRow(source.sums, scale, static_cast<const W*>(weights), count, static_cast<T*>(outs[0]));
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
