// The inner loops of rotary_embedding.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename T>
void WidenFactors(const void* from, std::int64_t count, float* to) {
  const T* const factors = static_cast<const T*>(from);
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) Store(to + i, Load(factors + i));
  if (i < count) StorePart(to + i, LoadPart(factors + i, count - i), count - i);
}

// Each two neighbors in each other's place.
inline INFINI_OPS_INLINE Vector<float> SwapNeighbors(Vector<float> values) {
  const auto pairs = reinterpret_cast<Vector<std::uint64_t>>(values);
  return reinterpret_cast<Vector<float>>((pairs >> 32) | (pairs << 32));
}

// Elements i and i + `pairs` are a pair. `factors` are its cosines, and then its sines.
template <typename T>
inline INFINI_OPS_INLINE void RotateHalves(T* head, std::int64_t pairs, const float* factors) {
  T* const second = head + pairs;
  const float* const sines = factors + pairs;
  std::int64_t i = 0;
  for (; i + kLanes<T> <= pairs; i += kLanes<T>) {
    const Vector<float> x = Load(head + i), y = Load(second + i);
    const Vector<float> cosine = Load(factors + i), sine = Load(sines + i);
    Store(head + i, x * cosine - y * sine);
    Store(second + i, y * cosine + x * sine);
  }
  if (i < pairs) {
    const std::int64_t count = pairs - i;
    const Vector<float> x = LoadPart(head + i, count), y = LoadPart(second + i, count);
    const Vector<float> cosine = LoadPart(factors + i, count), sine = LoadPart(sines + i, count);
    StorePart(head + i, x * cosine - y * sine, count);
    StorePart(second + i, y * cosine + x * sine, count);
  }
}

// Neighbors are a pair. `factors` has a factor for each element, and then one for its neighbor.
template <typename T>
inline INFINI_OPS_INLINE void RotateNeighbors(T* head, std::int64_t pairs, const float* factors) {
  const std::int64_t size = 2 * pairs;
  std::int64_t i = 0;
  for (; i + kLanes<T> <= size; i += kLanes<T>) {
    const Vector<float> x = Load(head + i);
    Store(head + i, x * Load(factors + i) + SwapNeighbors(x) * Load(factors + size + i));
  }
  if (i < size) {
    const std::int64_t count = size - i;
    const Vector<float> x = LoadPart(head + i, count);
    const Vector<float> own = LoadPart(factors + i, count);
    const Vector<float> others = LoadPart(factors + size + i, count);
    StorePart(head + i, x * own + SwapNeighbors(x) * others, count);
  }
}

// `count` heads of a token, `stride` elements apart.
template <typename T, bool is_neox>
void RotateHeads(void* first, std::int64_t count, std::int64_t stride, std::int64_t pairs,
                 const float* factors) {
  T* head = static_cast<T*>(first);
  for (std::int64_t i = 0; i < count; ++i, head += stride) {
    if constexpr (is_neox) {
      RotateHalves(head, pairs, factors);
    } else {
      RotateNeighbors(head, pairs, factors);
    }
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
