// Loops over contiguous elements, for one instruction set: for_each_isa.h includes it.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// out[i] = function(a[i], b[i]); `out` can be one of the inputs. `function` takes vectors or, for
// integers, single numbers. It can't be a lambda: GCC ignores the pragma for lambdas and compiles
// them for the baseline.
template <typename T, typename Function>
INFINI_OPS_INLINE inline void Map(const T* a, const T* b, T* out, std::int64_t count,
                                  const Function& function) {
  using C = Computed<T>;
  std::int64_t i = 0;
  if constexpr (!std::is_integral_v<T>) {
    for (; i + kLanes<T> <= count; i += kLanes<T>) {
      Store(out + i, function(Load(a + i), Load(b + i)));
    }
    if (i < count) {
      const std::int64_t rest = count - i;
      StorePart(out + i, function(LoadPart(a + i, rest), LoadPart(b + i, rest)), rest);
    }
  } else {
    // The compiler detects that the upper bits are not needed, and uses narrower vectors.
    INFINI_OPS_INDEPENDENT
    for (; i < count; ++i) {
      out[i] = static_cast<T>(function(static_cast<C>(a[i]), static_cast<C>(b[i])));
    }
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
