// Loops over contiguous elements, for one instruction set: for_each_isa.h includes it.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// float32 and float64 keep the loops of AVX2 in memory-bound operators: from 256 k elements on,
// those with vectors of 64 bytes take 1.15 times as long on a Zen 4.
template <typename T>
inline constexpr bool kHasAvx2Loops = INFINI_OPS_VECTOR_BYTES == 64 && std::is_floating_point_v<T>;

// `count` elements: whole pairs of vectors. Not inlined, so that Map has its code once.
template <typename T, typename Function>
__attribute__((noinline)) void MapPairs(const T* a, const T* b, T* out, std::int64_t count,
                                        const Function& function) {
  for (std::int64_t i = 0; i < count; i += 2 * kLanes<T>) {
    // Both are loaded before one is stored: the processor delays a load from an address whose lower
    // 12 bits are those of a store before it.
    const Pair<T> x = LoadPair(a + i);
    const Pair<T> y = LoadPair(b + i);
    StorePair<T>(out + i, {function(x.first, y.first), function(x.second, y.second)});
  }
}

// out[i] = function(a[i], b[i]); `out` can be one of the inputs. `function` takes vectors or, for
// integers, single numbers. It can't be a lambda: GCC ignores the pragma for lambdas and compiles
// them for the baseline.
template <typename T, typename Function>
INFINI_OPS_INLINE inline void Map(const T* a, const T* b, T* out, std::int64_t count,
                                  const Function& function) {
  using C = Computed<T>;
  if constexpr (!std::is_integral_v<T>) {
    constexpr std::int64_t size = 2 * kLanes<T>;
    const std::int64_t rest = count % size;
    const std::int64_t whole = count - rest;
    MapPairs(a, b, out, whole, function);
    if (rest == 0) return;
    T buffers[3][size] = {};
    const auto bytes = static_cast<std::size_t>(rest) * sizeof(T);
    std::memcpy(buffers[0], a + whole, bytes);
    std::memcpy(buffers[1], b + whole, bytes);
    MapPairs(buffers[0], buffers[1], buffers[2], size, function);
    std::memcpy(out + whole, buffers[2], bytes);
  } else {
    // The compiler detects that the upper bits are not needed, and uses narrower vectors.
    INFINI_OPS_INDEPENDENT
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<T>(function(static_cast<C>(a[i]), static_cast<C>(b[i])));
    }
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
