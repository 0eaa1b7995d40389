// The inner loop of mul.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

struct ElementProduct {
  template <typename V>
  INFINI_OPS_INLINE V operator()(V a, V b) const {
    return a * b;
  }
};

template <typename T>
void MultiplyElements(const void* input, const void* other, void* out, std::int64_t count,
                      const void*) {
#if INFINI_OPS_VECTOR_BYTES == 64
  if constexpr (kHasAvx2Loops<T>) {
    return avx2::MultiplyElements<T>(input, other, out, count, nullptr);
  }
#endif
  Map(static_cast<const T*>(input), static_cast<const T*>(other), static_cast<T*>(out), count,
      ElementProduct{});
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
