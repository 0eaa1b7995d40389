// The inner loops of attention.cc, once per instruction set: see for_each_isa.h. All of them are an
// online softmax: the powers of a block of scores are relative to the largest score so far, and a
// larger one scales what was summed before.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// exp(x - largest), which is 0 for an x of -infinity, even if there is no larger score.
inline INFINI_OPS_INLINE Vector<float> PowerOf(Vector<float> x, Vector<float> largest) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  return Exp<float>(x - (largest == lowest ? Vector<float>{} : largest));
}

// cap * tanh(score / cap), of whole vectors of scores.
inline void CapScores(std::int64_t count, float cap, float* scores) {
  using V = Vector<float>;
  constexpr float small = 0.35f;
  for (std::int64_t i = 0; i < count; i += kLanes<float>) {
    const V x = Load(scores + i) / cap;
    const V size = x < 0 ? -x : x;
    const V power = Exp<float>(size * -2);
    const V large = (1 - power) / (1 + power);
    // Where the difference cancels: the Taylor polynomial, whose error is below 2^-25 of the sum.
    const V square = x * x;
    V sum = V{} + -1382.0f / 155925;
    sum = sum * square + 62.0f / 2835;
    sum = sum * square + -17.0f / 315;
    sum = sum * square + 2.0f / 15;
    sum = sum * square + -1.0f / 3;
    sum = sum * square + 1;
    Store(scores + i, cap * (size < small ? x * sum : x < 0 ? -large : large));
  }
}

// Calls `step` with each number below `count`, and with 0 or 1 in turns: two chains of operations
// that do not wait for each other.
template <typename Step>
inline INFINI_OPS_INLINE void InTwoChains(std::int64_t count, const Step& step) {
  std::int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    step(i, 0);
    step(i + 1, 1);
  }
  if (i < count) step(i, 0);
}

// Replaces the scores of a block [keys, columns], whose columns are queries, by their powers.
// Scales `values` [value_size, columns], which were summed with the powers of the blocks before.
inline void SoftmaxColumns(const ScoreColumns& block) {
  using V = Vector<float>;
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t lanes = kLanes<float>;
  for (std::int64_t i = 0; i < block.columns; i += lanes) {
    const V before = Load(block.largest + i);
    V largest[2] = {before, before};
    float* const scores = block.scores + i;
    if (block.bias || block.ends) {
      const V begin = block.begins ? Load(block.begins + i) : V{};
      const V end = block.ends ? Load(block.ends + i) : V{} + static_cast<float>(block.keys);
      for (std::int64_t j = 0; j < block.keys; ++j) {
        V score = Load(scores + j * block.row_size);
        if (block.bias) score += Load(block.bias + j * block.row_size + i);
        const V key = V{} + static_cast<float>(j);
        score = key < begin ? V{} + lowest : score;
        Store(scores + j * block.row_size, key < end ? score : V{} + lowest);
      }
    }
    InTwoChains(block.keys, [&](std::int64_t j, int chain) INFINI_OPS_INLINE {
      largest[chain] = Max<float>(Load(scores + j * block.row_size), largest[chain]);
    });
    const V most = Max<float>(largest[0], largest[1]);
    V sums[2] = {};
    InTwoChains(block.keys, [&](std::int64_t j, int chain) INFINI_OPS_INLINE {
      float* const place = scores + j * block.row_size;
      const V power = PowerOf(Load(place), most);
      Store(place, power);
      sums[chain] += power;
    });
    const V factor = PowerOf(before, most);
    Store(block.largest + i, most);
    Store(block.sums + i, Load(block.sums + i) * factor + (sums[0] + sums[1]));
    for (std::int64_t k = 0; k < block.value_size; ++k) {
      float* const place = block.values + k * block.row_size + i;
      Store(place, Load(place) * factor);
    }
  }
}

// The same for one query and contiguous scores, in whole vectors. Returns the factor for what was
// summed before.
inline float SoftmaxRow(std::int64_t keys, float* scores, float* largest, float* sum) {
  using V = Vector<float>;
  constexpr std::int64_t lanes = kLanes<float>;
  V most = V{} + *largest;
  for (std::int64_t j = 0; j < keys; j += lanes) most = Max<float>(Load(scores + j), most);
  const float before = *largest;
  *largest = Largest<float>(most);
  most = V{} + *largest;
  V powers = {};
  for (std::int64_t j = 0; j < keys; j += lanes) {
    const V power = PowerOf(Load(scores + j), most);
    Store(scores + j, power);
    powers += power;
  }
  const float factor = PowerOf(V{} + before, most)[0];
  *sum = *sum * factor + Sum<float>(powers);
  return factor;
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
