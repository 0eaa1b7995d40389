// The inner loops of product.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// The accumulators of a tile stay in registers: 12 x 2 of 32 vectors, or 6 x 2 of 16. On a core
// with 200 GFLOP/s in float32, AVX-512 tiles of 8 x 2, 8 x 3, 12 x 2 and 14 x 2 reached 196, 196,
// 205 and 200.
inline constexpr int kTileRows = INFINI_OPS_VECTOR_BYTES == 64 ? 12 : 6;
inline constexpr int kTileVectors = 2;
template <typename C>
inline constexpr int kTileColumns = kTileVectors * kLanes<C>;

// Up to this number of multiplications, our kernels in place are faster than torch's library, which
// always uses the processor's best instructions, and than packing.
inline constexpr std::int64_t kSmallMultiplications =
    INFINI_OPS_VECTOR_BYTES >= 32 ? 64 * 64 * 64 : 16 * 16 * 16;

// The first `rows` rows and `vectors` vectors of a tile: stores the product of `k` steps in `sums`,
// or adds it. The elements of a row of `a` are `a_step` apart, and its rows `a_row`.
template <typename C, int rows, int vectors>
INFINI_OPS_INLINE inline void MultiplyTile(std::int64_t k, const C* a, std::int64_t a_row,
                                           std::int64_t a_step, const C* b, std::int64_t b_step,
                                           C* sums, std::int64_t row_size, bool add) {
  Vector<C> tile[rows][vectors] = {};
  for (std::int64_t step = 0; step < k; ++step) {
    Vector<C> columns[vectors];
    for (int j = 0; j < vectors; ++j) columns[j] = Load(b + j * kLanes<C>);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) tile[i][j] += a[i * a_row] * columns[j];
    }
    // Prefetched for the first tile of a strip, which reads from the second-level cache: 121 became
    // 135 GFLOP/s.
    for (int j = 0; j < vectors; ++j) __builtin_prefetch(b + 8 * b_step + j * kLanes<C>);
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 12
  for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < vectors; ++j) {
      C* const place = sums + i * row_size + j * kLanes<C>;
      Store(place, add ? Load(place) + tile[i][j] : tile[i][j]);
    }
  }
}

template <typename C, int rows>
INFINI_OPS_INLINE inline void MultiplyRows(std::int64_t columns, std::int64_t k, const C* a,
                                           std::int64_t a_row, std::int64_t a_step, const C* b,
                                           std::int64_t b_step, C* sums, std::int64_t row_size,
                                           bool add) {
  if (columns > kLanes<C>) {
    MultiplyTile<C, rows, kTileVectors>(k, a, a_row, a_step, b, b_step, sums, row_size, add);
  } else {
    MultiplyTile<C, rows, 1>(k, a, a_row, a_step, b, b_step, sums, row_size, add);
  }
}

// Compiled for the constant strides of packed elements: this saves 6 % of the time.
template <typename C, int rows>
void MultiplyPacked(std::int64_t columns, std::int64_t k, const C* a, const C* b, C* sums,
                    std::int64_t row_size, bool add) {
  MultiplyRows<C, rows>(columns, k, a, 1, kTileRows, b, kTileColumns<C>, sums, row_size, add);
}

template <typename C, int rows>
void MultiplyRowsInPlace(std::int64_t columns, std::int64_t k, const C* a, std::int64_t a_row,
                         std::int64_t a_step, const C* b, std::int64_t b_step, C* sums,
                         std::int64_t row_size) {
  MultiplyRows<C, rows>(columns, k, a, a_row, a_step, b, b_step, sums, row_size, false);
}

// Sums of m x n, in whole tiles. The strips are `a_step` and `b_step` elements apart.
template <typename C>
void MultiplyBlock(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                   std::int64_t a_step, const void* b, std::int64_t b_step, void* sums,
                   std::int64_t row_size, bool add) {
  constexpr int third = kTileRows / 3;
  const C* columns = static_cast<const C*>(b);
  for (std::int64_t j = 0; j < n; j += kTileColumns<C>, columns += b_step) {
    const C* strip = static_cast<const C*>(a);
    for (std::int64_t i = 0; i < m; i += kTileRows, strip += a_step) {
      const std::int64_t rows = m - i;
      const auto multiply = rows > 2 * third ? &MultiplyPacked<C, kTileRows>
                            : rows > third   ? &MultiplyPacked<C, 2 * third>
                                             : &MultiplyPacked<C, third>;
      multiply(n - j, k, strip, columns, static_cast<C*>(sums) + i * row_size + j, row_size, add);
    }
  }
}

// The sums of `m` rows, at least a third of a tile's, and of one tile's columns, from elements in
// place.
template <typename C>
void MultiplyInPlace(std::int64_t m, std::int64_t columns, std::int64_t k, const void* a,
                     std::int64_t a_row, std::int64_t a_step, const void* b, std::int64_t b_step,
                     void* sums, std::int64_t row_size) {
  constexpr int third = kTileRows / 3;
  for (std::int64_t i = 0; i < m;) {
    const bool is_whole = m - i > 2 * third && m >= kTileRows;
    const bool is_most = m - i > third && m >= 2 * third;
    const int rows = is_whole ? kTileRows : is_most ? 2 * third : third;
    const auto multiply = is_whole  ? &MultiplyRowsInPlace<C, kTileRows>
                          : is_most ? &MultiplyRowsInPlace<C, 2 * third>
                                    : &MultiplyRowsInPlace<C, third>;
    // The last rows can be among those before, whose sums are then stored again.
    const std::int64_t first = i + rows > m ? m - rows : i;
    multiply(columns, k, static_cast<const C*>(a) + first * a_row, a_row, a_step,
             static_cast<const C*>(b), b_step, static_cast<C*>(sums) + first * row_size, row_size);
    i += rows;
  }
}

// Converts rows of elements that are `stride` apart.
template <typename T>
void Convert(const void* source, std::int64_t row_stride, std::int64_t stride, std::int64_t rows,
             std::int64_t count, void* converted, std::int64_t row_size) {
  const T* row = static_cast<const T*>(source);
  Computed<T>* target = static_cast<Computed<T>*>(converted);
  for (; rows > 0; --rows, row += row_stride, target += row_size) {
    std::int64_t i = 0;
    if (stride == 1) {
      for (; i + kLanes<T> <= count; i += kLanes<T>) Store(target + i, Load(row + i));
    }
    for (; i < count; ++i) target[i] = static_cast<Computed<T>>(row[i * stride]);
  }
}

// Packs one strip of rows that are contiguous along k. Word has the size of a sum.
template <typename Word, int width>
void PackAlong(const ProductKernels& kernels, const char* source, std::int64_t row_stride,
               std::int64_t count, std::int64_t k, Word* packed) {
  constexpr std::int64_t chunk = 64;
  Word rows[width][chunk];
  // Only the padding: all of it is up to 8 KB, as long as a small product takes.
  std::memset(rows[0] + count * chunk, 0,
              static_cast<std::size_t>(width - count) * sizeof(rows[0]));
  for (std::int64_t begin = 0; begin < k; begin += chunk) {
    const std::int64_t size = k - begin < chunk ? k - begin : chunk;
    kernels.convert(source + begin * kernels.element_size, row_stride, 1, count, size, rows, chunk);
    for (std::int64_t step = 0; step < size; ++step) {
      for (int i = 0; i < width; ++i) *packed++ = rows[i][step];
    }
  }
}

// Packs strips of `width` rows from `count` rows of `k` elements each; pads the last one with
// zeros.
template <typename Word, int width>
void Pack(const ProductKernels& kernels, const void* source, std::int64_t row_stride,
          std::int64_t k_stride, std::int64_t count, std::int64_t k, void* packed) {
  const char* strip = static_cast<const char*>(source);
  Word* target = static_cast<Word*>(packed);
  for (; count > 0; count -= width, target += width * k) {
    const std::int64_t rows = count < width ? count : width;
    if (k_stride == 1) {
      PackAlong<Word, width>(kernels, strip, row_stride, rows, k, target);
    } else {
      if (rows < width && k > 0) {
        std::memset(target, 0, static_cast<std::size_t>(k) * width * sizeof(Word));
      }
      kernels.convert(strip, k_stride, row_stride, k, rows, target, width);
    }
    strip += width * row_stride * kernels.element_size;
  }
}

template <typename T, int rows, int columns>
inline INFINI_OPS_INLINE void AddProducts(const Computed<T>* a, std::int64_t a_stride,
                                          const T* const (&b)[columns], std::int64_t step,
                                          std::int64_t count,
                                          Vector<Computed<T>> (&tile)[rows][columns]) {
  Vector<Computed<T>> column[columns];
#pragma GCC unroll 4
  for (int j = 0; j < columns; ++j) {
    column[j] = count < kLanes<T> ? LoadPart(b[j] + step, count) : Load(b[j] + step);
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
    const Vector<Computed<T>> row = Load(a + i * a_stride + step);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) tile[i][j] += row * column[j];
  }
}

// Products of `rows` rows of `a` and the first `count` of `columns` columns of `b`, both contiguous
// along k. The rows of `a` are padded to whole vectors.
template <typename T, int rows, int columns>
void Dots(std::int64_t k, const Computed<T>* a, std::int64_t a_stride, const T* b,
          std::int64_t b_stride, std::int64_t count, Computed<T>* sums, std::int64_t row_size) {
  using C = Computed<T>;
  const T* column[columns];
  // The last column in place of those that are not there.
  for (int j = 0; j < columns; ++j) column[j] = b + (j < count ? j : count - 1) * b_stride;
  Vector<C> tile[rows][columns] = {};
  std::int64_t step = 0;
  for (; step + kLanes<T> <= k; step += kLanes<T>) {
    AddProducts<T>(a, a_stride, column, step, kLanes<T>, tile);
  }
  if (step < k) AddProducts<T>(a, a_stride, column, step, k - step, tile);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) {
      if (j < count) sums[i * row_size + j] = Sum<C>(tile[i][j]);
    }
  }
}

// Bytes of contiguous elements up to which the processor's own prefetching stops too often. With
// keys and values of 256 bytes, a decoding step took 1.24 times as long without ours.
inline constexpr std::int64_t kShortBytes = 512;

template <typename T>
inline INFINI_OPS_INLINE void Prefetch(const T* source, std::int64_t count) {
  constexpr std::int64_t line = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; i += line) __builtin_prefetch(source + i);
}

// Multiplies few rows of `a` with columns of `b` that are contiguous along k and read in place. The
// rows of `a` are padded to whole vectors; their number is 1 or padded to a multiple of four.
template <typename T>
void MultiplyAlong(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                   std::int64_t a_stride, const void* b, std::int64_t b_stride, void* sums,
                   std::int64_t row_size) {
  constexpr int at_once = 4;
  constexpr int columns = INFINI_OPS_VECTOR_BYTES < 64 ? 2 : at_once;
  constexpr std::int64_t short_size = kShortBytes / static_cast<std::int64_t>(sizeof(T));
  const auto* const rows = static_cast<const Computed<T>*>(a);
  // This many columns stay in the cache for the next rows.
  for (std::int64_t begin = 0; begin < n; begin += at_once) {
    const std::int64_t end = n - begin < at_once ? n : begin + at_once;
    for (std::int64_t j = begin; j < end && k <= short_size; ++j) {
      Prefetch(static_cast<const T*>(b) + (j + 2 * at_once) * b_stride, k);
    }
    for (std::int64_t i = 0; i < m; i += at_once) {
      for (std::int64_t j = begin; j < end;) {
        const T* const place = static_cast<const T*>(b) + j * b_stride;
        auto* const target = static_cast<Computed<T>*>(sums) + i * row_size + j;
        if (m == 1 && n == 1) {
          return Dots<T, 1, 1>(k, rows, a_stride, place, b_stride, 1, target, row_size);
        } else if (m == 1) {
          Dots<T, 1, at_once>(k, rows, a_stride, place, b_stride, end - j, target, row_size);
          j += at_once;
        } else {
          Dots<T, at_once, columns>(k, rows + i * a_stride, a_stride, place, b_stride, end - j,
                                    target, row_size);
          j += columns;
        }
      }
    }
  }
}

// The same for contiguous rows of `b`. The products can be added to the sums.
template <typename T>
void MultiplyAcross(std::int64_t m, std::int64_t n, std::int64_t k, const void* a,
                    std::int64_t a_stride, const void* b, std::int64_t b_stride, void* sums,
                    std::int64_t row_size, bool add) {
  using C = Computed<T>;
  constexpr std::int64_t at_once = 4;
  constexpr std::int64_t short_size = kShortBytes / static_cast<std::int64_t>(sizeof(T));
  C* const targets = static_cast<C*>(sums);
  for (std::int64_t i = 0; i < m && !add; ++i) {
    for (std::int64_t j = 0; j < n; ++j) targets[i * row_size + j] = 0;
  }
  for (std::int64_t begin = 0; begin < k; begin += at_once) {
    const std::int64_t steps = k - begin < at_once ? k - begin : at_once;
    for (std::int64_t step = 0; step < steps && n <= short_size; ++step) {
      Prefetch(static_cast<const T*>(b) + (begin + step + 2 * at_once) * b_stride, n);
    }
    for (std::int64_t j = 0; j < n; j += kLanes<T>) {
      Vector<C> row[at_once] = {};
      for (std::int64_t step = 0; step < steps; ++step) {
        const T* const place = static_cast<const T*>(b) + (begin + step) * b_stride + j;
        row[step] = n - j < kLanes<T> ? LoadPart(place, n - j) : Load(place);
      }
      for (std::int64_t i = 0; i < m; ++i) {
        // Padded with zeros, because `a` has whole vectors.
        const C* const factors = static_cast<const C*>(a) + i * a_stride + begin;
        C* const place = targets + i * row_size + j;
        Store(place, Load(place) + factors[0] * row[0] + factors[1] * row[1] + factors[2] * row[2] +
                         factors[3] * row[3]);
      }
    }
  }
}

// out = alpha * sums + beta * out + bias, of m x n. If `beta` is 0, the old values of `out` are not
// read.
template <typename T>
void Finish(std::int64_t m, std::int64_t n, const void* sums, std::int64_t row_size,
            const ProductEnd& end) {
  using C = Computed<T>;
  const C alpha = end.alpha.To<C>();
  const C beta = end.beta.To<C>();
  const C* sum = static_cast<const C*>(sums);
  T* out = reinterpret_cast<T*>(end.out.data);
  const T* bias = reinterpret_cast<const T*>(end.bias.data);
  for (std::int64_t i = 0; i < m; ++i, sum += row_size, out += end.out.row_stride) {
    std::int64_t j = 0;
    if (end.out.column_stride == 1 && (!bias || end.bias.column_stride == 1)) {
      for (; j + kLanes<T> <= n; j += kLanes<T>) {
        Vector<C> value = alpha * Load(sum + j);
        if (beta != 0) value += beta * Load(out + j);
        if (bias) value += Load(bias + j);
        Store(out + j, value);
      }
    }
    for (; j < n; ++j) {
      T* const place = out + j * end.out.column_stride;
      C value = alpha * sum[j];
      if (beta != 0) value += beta * static_cast<C>(*place);
      if (bias) value += static_cast<C>(bias[j * end.bias.column_stride]);
      *place = static_cast<T>(value);
    }
    if (bias) bias += end.bias.row_stride;
  }
}

template <typename T>
constexpr ProductKernels KernelsOf() {
  using C = Computed<T>;
  using Word = std::conditional_t<sizeof(C) == 4, std::uint32_t, std::uint64_t>;
  ProductKernels kernels{sizeof(T),
                         sizeof(T),
                         sizeof(C),
                         kLanes<C>,
                         kTileRows,
                         kTileColumns<C>,
                         kSmallMultiplications,
                         &Convert<T>,
                         &Pack<Word, kTileRows>,
                         &Pack<Word, kTileColumns<C>>,
                         &MultiplyBlock<C>,
                         &Finish<T>};
  // Few rows are important for inference, which uses floats. Compiling these kernels takes long.
  if constexpr (!std::is_integral_v<T>) {
    kernels.multiply_along = &MultiplyAlong<T>;
    kernels.multiply_across = &MultiplyAcross<T>;
  }
  if constexpr (std::is_floating_point_v<T>) kernels.multiply_in_place = &MultiplyInPlace<T>;
  return kernels;
}

template <typename T>
inline constexpr ProductKernels kProductKernels = KernelsOf<T>();

// Of elements that are multiplied into an out of float. Packed only.
constexpr ProductKernels Float8KernelsOf() {
  ProductKernels kernels = KernelsOf<float>();
  kernels.element_size = sizeof(Float8);
  kernels.convert = &Convert<Float8>;
  return kernels;
}

inline constexpr ProductKernels kFloat8Kernels = Float8KernelsOf();

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
