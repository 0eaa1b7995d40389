// The inner loop of add.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename C>
struct SumWithMultiple {
  template <typename V>
  INFINI_OPS_INLINE V operator()(V a, V b) const {
    return a + alpha * b;
  }

  C alpha;
};

template <typename T>
void AddElements(const void* input, const void* other, void* out, std::int64_t count,
                 const void* alpha) {
#if INFINI_OPS_VECTOR_BYTES == 64
  if constexpr (kHasAvx2Loops<T>) return avx2::AddElements<T>(input, other, out, count, alpha);
#endif
  using C = Computed<T>;
  Map(static_cast<const T*>(input), static_cast<const T*>(other), static_cast<T*>(out), count,
      SumWithMultiple<C>{*static_cast<const C*>(alpha)});
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
