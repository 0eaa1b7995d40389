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
void AddElements(const T* input, const T* other, T* out, std::int64_t count, Computed<T> alpha) {
  Map(input, other, out, count, SumWithMultiple<Computed<T>>{alpha});
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
