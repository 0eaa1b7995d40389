// The inner loops of top_k_top_p_sampling_from_logits.cc, once per instruction set: see
// for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Writes the largest number of each block of `block` elements, a multiple of the lanes. It ignores
// NaN.
inline void BlockMaxima(const float* row, std::int64_t size, std::int64_t block, float* maxima) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  for (std::int64_t begin = 0; begin < size; begin += block) {
    const std::int64_t end = begin + block < size ? begin + block : size;
    Vector<float> largest = Vector<float>{} + lowest;
    std::int64_t i = begin;
    for (; i + kLanes<float> <= end; i += kLanes<float>) {
      largest = Max<float>(Load(row + i), largest);
    }
    if (i < end) largest = Max<float>(LoadPart(row + i, end - i, lowest), largest);
    *maxima++ = Largest<float>(largest);
  }
}

// Writes exp(value - largest) * one for whole vectors of values. Infinity has the weight of `one`
// if it is the largest.
inline void Weigh(const float* values, std::int64_t count, float largest, float one,
                  std::int64_t* weights) {
  float powers[kLanes<float>];
  for (std::int64_t i = 0; i < count; i += kLanes<float>) {
    const Vector<float> value = Load(values + i);
    const Vector<float> power = Exp<float>(value == largest ? Vector<float>{} : value - largest);
    Store(powers, power * one);
    for (int lane = 0; lane < kLanes<float>; ++lane) {
      weights[i + lane] = static_cast<std::int64_t>(powers[lane]);
    }
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
