// The inner loop of swiglu.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename C>
struct GatedBySilu {
  INFINI_OPS_INLINE Vector<C> operator()(Vector<C> input, Vector<C> gate) const {
    // Computes sigmoid(gate) from the exponential that is at most 1.
    const Vector<C> power = Exp<C>(gate < -gate ? gate : -gate);
    const Vector<C> one = Vector<C>{} + 1;
    return input * (gate * (gate < 0 ? power : one) / (one + power));
  }
};

template <typename T>
void SwigluElements(const void* input, const void* gate, void* out, std::int64_t count,
                    const void*) {
  Map(static_cast<const T*>(input), static_cast<const T*>(gate), static_cast<T*>(out), count,
      GatedBySilu<Computed<T>>{});
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
