// The conversions of vector.h, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Elements of one type to another, one of which is a 16-bit float: whole vectors of them, and what
// remains as a part of one. `most`, unless it is 0, is the largest number of elements at a time.
template <typename From, typename To>
void ConvertInParts(const void* from, void* to, std::int64_t count, std::int64_t most) {
  const From* const source = static_cast<const From*>(from);
  To* const target = static_cast<To*>(to);
  const std::int64_t step = most ? std::min<std::int64_t>(most, kLanes<From>) : kLanes<From>;
  for (std::int64_t i = 0, size; i < count; i += size) {
    size = std::min(count - i, step);
    if (size == kLanes<From>) {
      Store(target + i, Load(source + i));
    } else {
      StorePart(target + i, LoadPart(source + i, size), size);
    }
  }
}

// The sums of the elements of `a` and of those after them, as `add` computes them.
template <typename T>
void AddPairs(const void* a, void* sums, std::int64_t count) {
  const T* const first = static_cast<const T*>(a);
  Map(first, first + count, static_cast<T*>(sums), count, Added());
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
