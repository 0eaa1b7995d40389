// The inner loop of moe_sum.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Adds `rows` rows of `count` elements, `step` elements apart.
template <typename T>
void SumRows(const T* from, std::int64_t rows, std::int64_t step, std::int64_t count, T* out) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    Vector<Computed<T>> sum = {};
    for (std::int64_t row = 0; row < rows; ++row) sum += Load(from + row * step + i);
    Store(out + i, sum);
  }
  if (i == count) return;
  Vector<Computed<T>> sum = {};
  for (std::int64_t row = 0; row < rows; ++row) sum += LoadPart(from + row * step + i, count - i);
  StorePart(out + i, sum, count - i);
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
