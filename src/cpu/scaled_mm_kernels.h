// The inner loops of scaled_mm.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// Vectors of 16-bit integers, of any memory.
using Shorts = VectorOf<std::int16_t>;
inline constexpr std::int64_t kShortLanes = INFINI_OPS_VECTOR_BYTES / 2;

// A vector's number of int8: those with even and with odd indices. No lane changes its place.
struct WideBytes {
  INFINI_OPS_INLINE explicit WideBytes(const std::int8_t* source) {
    const Words pairs = *reinterpret_cast<const VectorOf<std::uint32_t>::Loose*>(source);
    even = reinterpret_cast<Shorts::Type>(pairs) << 8 >> 8;
    odd = reinterpret_cast<Shorts::Type>(pairs) >> 8;
  }
  Shorts::Type even;
  Shorts::Type odd;
};

// Adds the products of two neighboring lanes to one lane, modulo 2^32.
INFINI_OPS_INLINE inline Words AddPairs(Words sums, const std::int16_t* a, Shorts::Type b) {
  const Shorts::Type factors = *reinterpret_cast<const Shorts::Loose*>(a);
#ifdef __aarch64__
  const auto x = reinterpret_cast<int16x8_t>(factors);
  const auto y = reinterpret_cast<int16x8_t>(b);
  const auto lower = vmlal_s16(reinterpret_cast<int32x4_t>(sums), vget_low_s16(x), vget_low_s16(y));
  return reinterpret_cast<Words>(vmlal_high_s16(lower, x, y));
#elif INFINI_OPS_VECTOR_BYTES == 16
  return sums + reinterpret_cast<Words>(__builtin_ia32_pmaddwd128(factors, b));
#elif INFINI_OPS_VECTOR_BYTES == 32
  return sums + reinterpret_cast<Words>(__builtin_ia32_pmaddwd256(factors, b));
#elif defined(__clang__)
  return sums + reinterpret_cast<Words>(__builtin_ia32_pmaddwd512(factors, b));
#else
  constexpr std::uint16_t all_lanes = 0xFFFF;
  return sums +
         reinterpret_cast<Words>(__builtin_ia32_pmaddwd512_mask(factors, b, Integers{}, all_lanes));
#endif
}

// Widens `count` elements that are `stride` apart, and pads them with zeros to whole vectors.
inline void WidenRow(const std::int8_t* source, std::int64_t stride, std::int64_t count,
                     std::int16_t* wide) {
  constexpr std::int64_t at_once = INFINI_OPS_VECTOR_BYTES;
  for (std::int64_t i = 0; i < count; i += at_once, source += at_once * stride) {
    std::int8_t gathered[at_once] = {};
    const bool is_whole = stride == 1 && i + at_once <= count;
    for (std::int64_t j = 0; !is_whole && j < at_once && i + j < count; ++j) {
      gathered[j] = source[j * stride];
    }
    const WideBytes bytes(is_whole ? source : gathered);
    *reinterpret_cast<Shorts::Loose*>(wide + i) = bytes.even;
    *reinterpret_cast<Shorts::Loose*>(wide + i + kShortLanes) = bytes.odd;
  }
}

// Adds the products of one vector of each row and column.
template <int rows, int columns>
INFINI_OPS_INLINE inline void AddByteProducts(const std::int16_t* a, std::int64_t a_stride,
                                              const std::int8_t* const (&b)[columns],
                                              std::int64_t step, Words (&tile)[rows][columns]) {
#pragma GCC unroll 4
  for (int j = 0; j < columns; ++j) {
    const WideBytes bytes(b[j] + step);
#pragma GCC unroll 4
    for (int i = 0; i < rows; ++i) {
      const std::int16_t* const row = a + i * a_stride + step;
      tile[i][j] = AddPairs(tile[i][j], row, bytes.even);
      tile[i][j] = AddPairs(tile[i][j], row + kShortLanes, bytes.odd);
    }
  }
}

// Sums of `rows` rows of `a` and `columns` columns of `b`, of which the first m and n are stored or
// added.
template <int rows, int columns>
void MultiplyByteTile(std::int64_t m, std::int64_t n, std::int64_t k, const std::int16_t* a,
                      std::int64_t a_stride, const std::int8_t* b, std::int64_t b_stride,
                      std::uint32_t* sums, std::int64_t row_size, bool add) {
  constexpr std::int64_t at_once = INFINI_OPS_VECTOR_BYTES;
  const std::int8_t* column[columns];
  // The last column in place of those that are not there.
  for (int j = 0; j < columns; ++j) column[j] = b + (j < n ? j : n - 1) * b_stride;
  Words tile[rows][columns] = {};
  std::int64_t step = 0;
  for (; step + at_once <= k; step += at_once) {
    AddByteProducts(a, a_stride, column, step, tile);
  }
  if (step < k) {
    std::int8_t parts[columns][at_once] = {};
    for (int j = 0; j < columns; ++j) {
      std::memcpy(parts[j], column[j] + step, static_cast<std::size_t>(k - step));
      column[j] = parts[j];
    }
    AddByteProducts(a + step, a_stride, column, 0, tile);
  }
  for (int i = 0; i < rows && i < m; ++i) {
    for (int j = 0; j < columns && j < n; ++j) {
      std::uint32_t* const sum = sums + i * row_size + j;
      *sum = Sum<std::uint32_t>(tile[i][j]) + (add ? *sum : 0);
    }
  }
}

// Sums of m x n products of `k` steps, modulo 2^32: stored, or added. The rows of `a` are widened,
// and their number is 1 or filled up to a multiple of four. The columns of `b` are contiguous.
inline void MultiplyBytes(std::int64_t m, std::int64_t n, std::int64_t k, const std::int16_t* a,
                          std::int64_t a_stride, const std::int8_t* b, std::int64_t b_stride,
                          std::uint32_t* sums, std::int64_t row_size, bool add) {
  constexpr int at_once = 4;
  constexpr int columns = INFINI_OPS_VECTOR_BYTES < 64 ? 2 : at_once;
  const auto multiply =
      m == 1 ? &MultiplyByteTile<1, at_once> : &MultiplyByteTile<at_once, columns>;
  const std::int64_t step = m == 1 ? at_once : columns;
  for (std::int64_t i = 0; i < m; i += at_once) {
    for (std::int64_t j = 0; j < n; j += step) {
      multiply(m - i, n - j, k, a + i * a_stride, a_stride, b + j * b_stride, b_stride,
               sums + i * row_size + j, row_size, add);
    }
  }
}

template <typename T, typename S>
INFINI_OPS_INLINE inline void ScaleSums(const S* sums, std::int64_t count, float row_scale,
                                        const float* scales, const T* bias, T* out) {
  for (std::int64_t i = 0; i < count; i += kLanes<T>) {
    const std::int64_t part = count - i;
    const bool is_part = part < kLanes<T>;
    Vector<float> sum;
    if constexpr (std::is_integral_v<S>) {
      const Words words = is_part ? LoadPart(sums + i, part) : Load(sums + i);
      sum = __builtin_convertvector(reinterpret_cast<Integers>(words), Vector<float>);
    } else {
      sum = is_part ? LoadPart(sums + i, part) : Load(sums + i);
    }
    Vector<float> value = sum * (is_part ? LoadPart(scales + i, part) : Load(scales + i));
    value *= row_scale;
    if (bias) value += is_part ? LoadPart(bias + i, part) : Load(bias + i);
    if (is_part) {
      StorePart(out + i, value, part);
    } else {
      Store(out + i, value);
    }
  }
}

// One row of `out` from its sums, in float or in std::int32_t.
template <typename T>
void ScaleRow(const void* sums, bool are_integers, std::int64_t count, float row_scale,
              const float* scales, const void* bias, void* out) {
  const T* const added = static_cast<const T*>(bias);
  T* const target = static_cast<T*>(out);
  if (are_integers) {
    ScaleSums(static_cast<const std::int32_t*>(sums), count, row_scale, scales, added, target);
  } else {
    ScaleSums(static_cast<const float*>(sums), count, row_scale, scales, added, target);
  }
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
