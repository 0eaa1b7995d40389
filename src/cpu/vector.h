// Vectors of one instruction set. There is no include guard, because for_each_isa.h includes this
// file once per instruction set. A file that includes for_each_isa.h must first include <cstdint>,
// <cstring>, <type_traits>, "core/elements.h", "cpu/half.h", and on aarch64 <arm_neon.h>.

namespace infini::ops::cpu::INFINI_OPS_ISA {

template <typename T, int bytes = INFINI_OPS_VECTOR_BYTES>
struct VectorOf {
  typedef T Type __attribute__((vector_size(bytes)));
  // For any address, and memory of any type.
  typedef T Loose __attribute__((vector_size(bytes), aligned(1), may_alias));
};
template <typename T>
using Vector = typename VectorOf<T>::Type;

template <typename T>
inline constexpr int kLanes = INFINI_OPS_VECTOR_BYTES / static_cast<int>(sizeof(Computed<T>));

// As many elements as the vector type of their computation has lanes.
template <typename T>
using Packed = VectorOf<T, kLanes<T>* static_cast<int>(sizeof(T))>;

using Words = Vector<std::uint32_t>;
using Integers = Vector<std::int32_t>;
using HalfWords = VectorOf<std::uint16_t, INFINI_OPS_VECTOR_BYTES / 2>;
// Of 16-bit floats, as the compilers' own functions take them. Those of <immintrin.h> have the same
// arguments, but GCC needs 0.5 CPU-seconds to read that header.
using Halves = VectorOf<short, INFINI_OPS_VECTOR_BYTES / 2>;

inline INFINI_OPS_INLINE Vector<float> WidenFloat16(const void* source) {
#if INFINI_OPS_VECTOR_BYTES == 64
  constexpr int all_lanes = 0xFFFF;
  constexpr int current_rounding = 4;
  return __builtin_ia32_vcvtph2ps512_mask(*static_cast<const Halves::Loose*>(source),
                                          Vector<float>{}, all_lanes, current_rounding);
#elif INFINI_OPS_VECTOR_BYTES == 32
  return __builtin_ia32_vcvtph2ps256(*static_cast<const Halves::Loose*>(source));
#elif defined(__aarch64__)
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(static_cast<const std::uint16_t*>(source))));
#else
  const Words bits = __builtin_convertvector(*static_cast<const HalfWords::Loose*>(source), Words);
  const Words magnitude = (bits & 0x7FFFu) << 13;
  // Multiplying by 2^112 corrects the exponents, also of subnormal numbers; those of infinity and
  // NaN need it twice.
  const Vector<float> scaled = reinterpret_cast<Vector<float>>(magnitude) * 0x1p112f;
  const Words special = reinterpret_cast<Words>(magnitude >= (0x7C00u << 13));
  return reinterpret_cast<Vector<float>>(reinterpret_cast<Words>(scaled) |
                                         ((bits & 0x8000u) << 16) | (special & 0x7F800000u));
#endif
}

// Stores the lower half of each lane. The lanes are in the range of 16-bit integers.
inline INFINI_OPS_INLINE void StoreHalves(void* target, Integers lanes) {
#if INFINI_OPS_VECTOR_BYTES == 16 && defined(__x86_64__)
  // The compilers' own conversion for SSE2 takes eight instructions.
  const auto halves = __builtin_ia32_packssdw128(lanes, lanes);
  std::memcpy(target, &halves, sizeof(halves) / 2);
#else
  *static_cast<HalfWords::Loose*>(target) = __builtin_convertvector(lanes, HalfWords::Type);
#endif
}

// Stores the lowest byte of each lane.
inline INFINI_OPS_INLINE void StoreBytes(void* target, Words lanes) {
#if INFINI_OPS_VECTOR_BYTES <= 32 && defined(__x86_64__)
  // GCC 12 would extract each lane, with 40 instructions.
  const Integers bytes = reinterpret_cast<Integers>(lanes & 0xFFu);
#if INFINI_OPS_VECTOR_BYTES == 32
  using Half = VectorOf<std::int32_t, 16>::Type;
  Half parts[2];
  std::memcpy(parts, &bytes, sizeof(bytes));
  const auto halves = __builtin_ia32_packssdw128(parts[0], parts[1]);
#else
  const auto halves = __builtin_ia32_packssdw128(bytes, bytes);
#endif
  const auto packed = __builtin_ia32_packuswb128(halves, halves);
  std::memcpy(target, &packed, INFINI_OPS_VECTOR_BYTES / 4);
#else
  using Bytes = VectorOf<std::uint8_t, INFINI_OPS_VECTOR_BYTES / 4>;
  *static_cast<Bytes::Loose*>(target) = __builtin_convertvector(lanes, Bytes::Type);
#endif
}

inline INFINI_OPS_INLINE void NarrowFloat16(void* target, Vector<float> value) {
#if INFINI_OPS_VECTOR_BYTES >= 32
  constexpr int to_nearest = 0;
#if INFINI_OPS_VECTOR_BYTES == 64
  constexpr int all_lanes = 0xFFFF;
  const auto halves =
      __builtin_ia32_vcvtps2ph512_mask(value, to_nearest, Halves::Type{}, all_lanes);
#else
  const auto halves = __builtin_ia32_vcvtps2ph256(value, to_nearest);
#endif
  // As 64-bit words: otherwise GCC combines conversion and store to an instruction that takes
  // longer.
  using Stored = VectorOf<std::int64_t, INFINI_OPS_VECTOR_BYTES / 2>;
  *static_cast<Stored::Loose*>(target) = reinterpret_cast<Stored::Type>(halves);
#elif defined(__aarch64__)
  vst1_u16(static_cast<std::uint16_t*>(target), vreinterpret_u16_f16(vcvt_f16_f32(value)));
#else
  // As Float16 rounds a single number, with all its cases at once. SSE2 compares signed numbers
  // only.
  const Words bits = reinterpret_cast<Words>(value);
  const Words magnitude = bits & 0x7FFFFFFFu;
  const Integers size = reinterpret_cast<Integers>(magnitude);
  const Vector<float> shifted = reinterpret_cast<Vector<float>>(magnitude) + 0.5f;
  const Words subnormal = reinterpret_cast<Words>(shifted) - 0x3F000000u;  // the bits of 0.5
  const Words rounded = magnitude + 0x0FFFu + ((magnitude >> 13) & 1u);
  Words half = size < 0x38800000 ? subnormal : (rounded - ((127u - 15u) << 23)) >> 13;
  half = size >= 0x477FF000 ? Words{} + 0x7C00u : half;
  half = size > 0x7F800000 ? Words{} + 0x7E00u : half;
  const Words sign = reinterpret_cast<Words>(reinterpret_cast<Integers>(bits) >> 31) << 15;
  StoreHalves(target, reinterpret_cast<Integers>(half | sign));
#endif
}

inline INFINI_OPS_INLINE Vector<float> WidenBFloat16(const void* source) {
#ifdef __aarch64__
  // From a vector of half the size, GCC 12 would load single elements.
  const uint16x4_t bits = vld1_u16(static_cast<const std::uint16_t*>(source));
  return reinterpret_cast<Vector<float>>(vshll_n_u16(bits, 16));
#else
  const auto bits = *static_cast<const HalfWords::Loose*>(source);
  return reinterpret_cast<Vector<float>>(__builtin_convertvector(bits, Words) << 16);
#endif
}

// The upper half of each lane is the BFloat16.
inline INFINI_OPS_INLINE Words RoundToBFloat16(Vector<float> value) {
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return value == value ? rounded : Words{} + 0x7FC00000u;
}

inline INFINI_OPS_INLINE void NarrowBFloat16(void* target, Vector<float> value) {
  StoreHalves(target, reinterpret_cast<Integers>(RoundToBFloat16(value)) >> 16);
}

// `bits` has a Float8 in each lane, and the results that of Float8 converting a single number.
inline INFINI_OPS_INLINE Vector<float> WidenFloat8(Words bits) {
  const Words magnitude = (bits & 0x7Fu) << 20;
  const Words rebiased = magnitude + ((127u - 7u) << 23);
  const Vector<float> shifted = reinterpret_cast<Vector<float>>(rebiased + 0x00800000u);
  const Words subnormal = reinterpret_cast<Words>(shifted - 0x1p-6f);
  const Integers size = reinterpret_cast<Integers>(magnitude);
  Words wide = size < 0x00800000 ? subnormal : rebiased;
  wide = size == 0x07F00000 ? Words{} + 0x7FC00000u : wide;
  return reinterpret_cast<Vector<float>>(wide | ((bits & 0x80u) << 24));
}

// Float8 in the lower bytes of numbers up to 448, to nearest, ties to even; NaN stays NaN.
inline INFINI_OPS_INLINE Words RoundToFloat8(Vector<float> value) {
  const Words bits = reinterpret_cast<Words>(value);
  const Words magnitude = bits & 0x7FFFFFFFu;
  const Integers size = reinterpret_cast<Integers>(magnitude);
  // Multiples of 2^-9 are subnormal: float addition rounds to them.
  const Vector<float> shifted = reinterpret_cast<Vector<float>>(magnitude) + 0x1p14f;
  const Words subnormal = reinterpret_cast<Words>(shifted) - 0x46800000u;  // the bits of 2^14
  const Words rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  Words small = size < 0x3C800000 ? subnormal : (rounded - ((127u - 7u) << 23)) >> 20;
  small = size > 0x7F800000 ? Words{} + 0x7Fu : small;
  return small | (bits >> 31 << 7);
}

// Loads one element per lane, in the type of the computation.
template <typename T>
inline INFINI_OPS_INLINE Vector<Computed<T>> Load(const T* source) {
  if constexpr (std::is_same_v<T, Float16>) {
    return WidenFloat16(source);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return WidenBFloat16(source);
  } else if constexpr (std::is_same_v<T, Float8>) {
    return WidenFloat8(Load(reinterpret_cast<const std::uint8_t*>(source)));
  } else if constexpr (std::is_floating_point_v<T>) {
    return *reinterpret_cast<const typename VectorOf<T>::Loose*>(source);
  } else {
    return __builtin_convertvector(*reinterpret_cast<const typename Packed<T>::Loose*>(source),
                                   Vector<Computed<T>>);
  }
}

template <typename T>
inline INFINI_OPS_INLINE void Store(T* target, Vector<Computed<T>> value) {
  if constexpr (std::is_same_v<T, Float16>) {
    NarrowFloat16(target, value);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    NarrowBFloat16(target, value);
  } else if constexpr (std::is_same_v<T, Float8>) {
    StoreBytes(target, RoundToFloat8(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    *reinterpret_cast<typename VectorOf<T>::Loose*>(target) = value;
  } else if constexpr (sizeof(T) == 1) {
    StoreBytes(target, value);
  } else {
    *reinterpret_cast<typename Packed<T>::Loose*>(target) =
        __builtin_convertvector(value, typename Packed<T>::Type);
  }
}

// Two vectors of consecutive elements. Which lane has which element depends only on T.
template <typename T>
struct Pair {
  Vector<Computed<T>> first;
  Vector<Computed<T>> second;
};

template <typename T>
inline INFINI_OPS_INLINE Pair<T> LoadPair(const T* source) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    // The elements with even and with odd indices: no lane changes its place.
    const Words bits = *reinterpret_cast<const VectorOf<std::uint32_t>::Loose*>(source);
    return {reinterpret_cast<Vector<float>>(bits << 16),
            reinterpret_cast<Vector<float>>(bits & 0xFFFF0000u)};
  } else {
    return {Load(source), Load(source + kLanes<T>)};
  }
}

template <typename T>
inline INFINI_OPS_INLINE void StorePair(T* target, const Pair<T>& pair) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    *reinterpret_cast<VectorOf<std::uint32_t>::Loose*>(target) =
        (RoundToBFloat16(pair.first) >> 16) | (RoundToBFloat16(pair.second) & 0xFFFF0000u);
  } else {
    Store(target, pair.first);
    Store(target + kLanes<T>, pair.second);
  }
}

// The first `count` lanes of `value`, and `fill` in the others.
template <typename C>
inline INFINI_OPS_INLINE Vector<C> KeepFirst(Vector<C> value, std::int64_t count, C fill) {
  using Lane = std::conditional_t<sizeof(C) == 8, std::int64_t, std::int32_t>;
  constexpr Lane numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vector<Lane> lanes = *reinterpret_cast<const typename VectorOf<Lane>::Loose*>(numbers);
  return lanes < static_cast<Lane>(count) ? value : Vector<C>{} + fill;
}

// Loads only the first `count` elements; the other lanes are `fill`.
template <typename T>
inline INFINI_OPS_INLINE Vector<Computed<T>> LoadPart(const T* source, std::int64_t count,
                                                      Computed<T> fill = 0) {
  T elements[kLanes<T>] = {};
  std::memcpy(elements, source, static_cast<std::size_t>(count) * sizeof(T));
  return KeepFirst<Computed<T>>(Load(elements), count, fill);
}

template <typename T>
inline INFINI_OPS_INLINE void StorePart(T* target, Vector<Computed<T>> value, std::int64_t count) {
  T lanes[kLanes<T>];
  Store(lanes, value);
  std::memcpy(target, lanes, static_cast<std::size_t>(count) * sizeof(T));
}

template <typename C>
inline INFINI_OPS_INLINE Vector<C> Max(Vector<C> a, Vector<C> b) {
  return a > b ? a : b;
}

// Reduces all lanes with `combine`, by halves: a sequential reduction would wait at each step.
template <typename C, typename Combine, int lanes = kLanes<C>>
inline INFINI_OPS_INLINE C Fold(typename VectorOf<C, lanes* int{sizeof(C)}>::Type value,
                                Combine combine) {
  if constexpr (lanes * sizeof(C) > 16) {
    typename VectorOf<C, lanes / 2 * int{sizeof(C)}>::Type halves[2];
    std::memcpy(halves, &value, sizeof(value));
    return Fold<C, Combine, lanes / 2>(combine(halves[0], halves[1]), combine);
  } else if constexpr (lanes == 4) {
    return combine(combine(value[0], value[2]), combine(value[1], value[3]));
  } else {
    return combine(value[0], value[1]);
  }
}

struct Added {
  template <typename V>
  INFINI_OPS_INLINE V operator()(V a, V b) const {
    return a + b;
  }
};

template <typename C>
inline INFINI_OPS_INLINE C Sum(Vector<C> value) {
  return Fold<C>(value, Added());
}

struct Larger {
  template <typename V>
  INFINI_OPS_INLINE V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};

template <typename C>
inline INFINI_OPS_INLINE C Largest(Vector<C> value) {
  return Fold<C>(value, Larger());
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
