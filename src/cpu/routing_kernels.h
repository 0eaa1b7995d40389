// The inner loop of routing.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

inline INFINI_OPS_INLINE Vector<float> Sigmoid(Vector<float> x) {
  const Vector<float> power = Exp<float>(x < -x ? x : -x);
  const Vector<float> one = Vector<float>{} + 1;
  return (x < 0 ? power : one) / (one + power);
}

void SigmoidRow(const float* scores, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + kLanes<float> <= count; i += kLanes<float>) Store(out + i, Sigmoid(Load(scores + i)));
  if (i < count) StorePart(out + i, Sigmoid(LoadPart(scores + i, count - i)), count - i);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
