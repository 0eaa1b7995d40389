// The inner loops of product.cc, once per instruction set: see for_each_isa.h.

namespace infini::ops::cpu::INFINI_OPS_ISA {

// The accumulators of a tile stay in registers: 12 x 2 of 32 vectors, or 6 x 2 of 16. On a core
// with 200 GFLOP/s in float32, AVX-512 tiles of 8 x 2, 8 x 3, 12 x 2 and 14 x 2 reached 196, 196,
// 205 and 200.
inline constexpr int kTileRows = INFINI_OPS_VECTOR_BYTES == 64 ? 12 : 6;
inline constexpr int kTileVectors = 2;
template <typename C>
inline constexpr int kTileColumns = kTileVectors * kLanes<C>;

// The first `rows` rows and `vectors` vectors of a tile: stores the product of strips of `k` steps
// in `sums`, or adds it.
template <typename C, int rows, int vectors>
void MultiplyTile(std::int64_t k, const C* a, const C* b, C* sums, std::int64_t row_size,
                  bool add) {
  Vector<C> tile[rows][vectors] = {};
  for (std::int64_t step = 0; step < k; ++step) {
    Vector<C> columns[vectors];
    for (int j = 0; j < vectors; ++j) columns[j] = Load(b + j * kLanes<C>);
#pragma GCC unroll 12
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 2
      for (int j = 0; j < vectors; ++j) tile[i][j] += a[i] * columns[j];
    }
    // Prefetched for the first tile of a strip, which reads from the second-level cache: 121 became
    // 135 GFLOP/s.
    for (int j = 0; j < vectors; ++j) __builtin_prefetch(b + 8 * kTileColumns<C> + j * kLanes<C>);
    a += kTileRows;
    b += kTileColumns<C>;
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
void MultiplyRows(std::int64_t columns, std::int64_t k, const C* a, const C* b, C* sums,
                  std::int64_t row_size, bool add) {
  if (columns > kLanes<C>) return MultiplyTile<C, rows, kTileVectors>(k, a, b, sums, row_size, add);
  MultiplyTile<C, rows, 1>(k, a, b, sums, row_size, add);
}

// Sums of m x n, in whole tiles. The strips are `a_step` and `b_step` elements apart.
template <typename C>
void MultiplyBlock(std::int64_t m, std::int64_t n, std::int64_t k, const C* a, std::int64_t a_step,
                   const C* b, std::int64_t b_step, C* sums, std::int64_t row_size, bool add) {
  constexpr int third = kTileRows / 3;
  for (std::int64_t j = 0; j < n; j += kTileColumns<C>, b += b_step) {
    const C* strip = a;
    for (std::int64_t i = 0; i < m; i += kTileRows, strip += a_step) {
      const std::int64_t rows = m - i;
      const auto multiply = rows > 2 * third ? &MultiplyRows<C, kTileRows>
                            : rows > third   ? &MultiplyRows<C, 2 * third>
                                             : &MultiplyRows<C, third>;
      multiply(n - j, k, strip, b, sums + i * row_size + j, row_size, add);
    }
  }
}

template <typename T>
void Convert(const T* source, std::int64_t count, Computed<T>* target) {
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) Store(target + i, Load(source + i));
  for (; i < count; ++i) target[i] = static_cast<Computed<T>>(source[i]);
}

// Packs one strip of rows that are contiguous along k.
template <typename T, int width>
void PackAlong(const T* source, std::int64_t stride, std::int64_t count, std::int64_t k,
               Computed<T>* packed) {
  using C = Computed<T>;
  constexpr std::int64_t chunk = 64;
  C rows[width][chunk];
  // Only the padding: all of it is up to 8 KB, as long as a small product takes.
  std::memset(rows[0] + count * chunk, 0,
              static_cast<std::size_t>(width - count) * sizeof(rows[0]));
  for (std::int64_t begin = 0; begin < k; begin += chunk) {
    const std::int64_t size = k - begin < chunk ? k - begin : chunk;
    for (std::int64_t i = 0; i < count; ++i) Convert(source + i * stride + begin, size, rows[i]);
    for (std::int64_t step = 0; step < size; ++step) {
      for (int i = 0; i < width; ++i) *packed++ = rows[i][step];
    }
  }
}

// Packs one strip of rows that are interleaved: contiguous across the rows.
template <typename T, int width>
void PackAcross(const T* source, std::int64_t stride, std::int64_t count, std::int64_t k,
                Computed<T>* packed) {
  for (std::int64_t step = 0; step < k; ++step, source += stride, packed += width) {
    if constexpr (width % kLanes<T> == 0) {
      if (count == width) {
        for (int i = 0; i < width; i += kLanes<T>) Store(packed + i, Load(source + i));
        continue;
      }
    }
    for (std::int64_t i = 0; i < width; ++i) {
      packed[i] = i < count ? static_cast<Computed<T>>(source[i]) : 0;
    }
  }
}

// Packs strips of `width` rows from `count` rows of `k` elements each; pads the last one with
// zeros.
template <typename T, int width>
void Pack(const T* source, std::int64_t row_stride, std::int64_t k_stride, std::int64_t count,
          std::int64_t k, Computed<T>* packed) {
  for (; count > 0; count -= width, source += width * row_stride, packed += width * k) {
    const std::int64_t rows = count < width ? count : width;
    if (k_stride == 1) {
      PackAlong<T, width>(source, row_stride, rows, k, packed);
    } else if (row_stride == 1) {
      PackAcross<T, width>(source, k_stride, rows, k, packed);
    } else {
      for (std::int64_t i = 0; i < width * k; ++i) {
        const std::int64_t row = i % width;
        const T* const element = source + row * row_stride + i / width * k_stride;
        packed[i] = row < rows ? static_cast<Computed<T>>(*element) : 0;
      }
    }
  }
}

template <typename T, int rows, int columns>
inline INFINI_OPS_INLINE void AddProducts(const Computed<T>* a, std::int64_t a_stride, const T* b,
                                          std::int64_t b_stride, std::int64_t count,
                                          Vector<Computed<T>> (&tile)[rows][columns]) {
  Vector<Computed<T>> column[columns];
#pragma GCC unroll 4
  for (int j = 0; j < columns; ++j) {
    const T* const place = b + j * b_stride;
    column[j] = count < kLanes<T> ? LoadPart(place, count) : Load(place);
  }
#pragma GCC unroll 4
  for (int i = 0; i < rows; ++i) {
    const Vector<Computed<T>> row = Load(a + i * a_stride);
#pragma GCC unroll 4
    for (int j = 0; j < columns; ++j) tile[i][j] += row * column[j];
  }
}

// Products of `rows` rows of `a` and `columns` columns of `b`, both contiguous along k. The rows of
// `a` are padded to whole vectors.
template <typename T, int rows, int columns>
void Dots(std::int64_t k, const Computed<T>* a, std::int64_t a_stride, const T* b,
          std::int64_t b_stride, Computed<T>* sums, std::int64_t row_size) {
  using C = Computed<T>;
  Vector<C> tile[rows][columns] = {};
  std::int64_t step = 0;
  for (; step + kLanes<T> <= k; step += kLanes<T>) {
    AddProducts<T>(a + step, a_stride, b + step, b_stride, kLanes<T>, tile);
  }
  if (step < k) AddProducts<T>(a + step, a_stride, b + step, b_stride, k - step, tile);
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) sums[i * row_size + j] = Sum<C>(tile[i][j]);
  }
}

template <typename T, int rows>
void DotsOfRows(std::int64_t columns, std::int64_t k, const Computed<T>* a, std::int64_t a_stride,
                const T* b, std::int64_t b_stride, Computed<T>* sums, std::int64_t row_size) {
  constexpr int at_once = INFINI_OPS_VECTOR_BYTES < 64 && rows > 2 ? 2 : 4;
  std::int64_t j = 0;
  for (; j + at_once <= columns; j += at_once) {
    Dots<T, rows, at_once>(k, a, a_stride, b + j * b_stride, b_stride, sums + j, row_size);
  }
  for (; j < columns; ++j) {
    Dots<T, rows, 1>(k, a, a_stride, b + j * b_stride, b_stride, sums + j, row_size);
  }
}

// Multiplies few rows of `a` with columns of `b` that are contiguous along k and read in place. The
// rows of `a` are padded to whole vectors; their number is 1 or padded to a multiple of four.
template <typename T>
void MultiplyAlong(std::int64_t m, std::int64_t n, std::int64_t k, const Computed<T>* a,
                   std::int64_t a_stride, const T* b, std::int64_t b_stride, Computed<T>* sums,
                   std::int64_t row_size) {
  constexpr std::int64_t at_once = 4;
  const auto multiply = m == 1 ? &DotsOfRows<T, 1> : &DotsOfRows<T, at_once>;
  // This many columns stay in the cache for the next rows.
  for (std::int64_t j = 0; j < n; j += at_once) {
    const std::int64_t columns = n - j < at_once ? n - j : at_once;
    for (std::int64_t i = 0; i < m; i += at_once) {
      multiply(columns, k, a + i * a_stride, a_stride, b + j * b_stride, b_stride,
               sums + i * row_size + j, row_size);
    }
  }
}

// The same for contiguous rows of `b`.
template <typename T>
void MultiplyAcross(std::int64_t m, std::int64_t n, std::int64_t k, const Computed<T>* a,
                    std::int64_t a_stride, const T* b, std::int64_t b_stride, Computed<T>* sums,
                    std::int64_t row_size) {
  using C = Computed<T>;
  constexpr std::int64_t at_once = 4;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) sums[i * row_size + j] = 0;
  }
  for (std::int64_t begin = 0; begin < k; begin += at_once) {
    const std::int64_t steps = k - begin < at_once ? k - begin : at_once;
    for (std::int64_t j = 0; j < n; j += kLanes<T>) {
      Vector<C> row[at_once] = {};
      for (std::int64_t step = 0; step < steps; ++step) {
        const T* const place = b + (begin + step) * b_stride + j;
        row[step] = n - j < kLanes<T> ? LoadPart(place, n - j) : Load(place);
      }
      for (std::int64_t i = 0; i < m; ++i) {
        // Padded with zeros, because `a` has whole vectors.
        const C* const factors = a + i * a_stride + begin;
        C* const place = sums + i * row_size + j;
        Store(place, Load(place) + factors[0] * row[0] + factors[1] * row[1] + factors[2] * row[2] +
                         factors[3] * row[3]);
      }
    }
  }
}

// out = alpha * sums + beta * out + bias, along a row. `bias` can be nullptr. If `beta` is 0, the
// old values of `out` are not read.
template <typename T>
void Finish(const Computed<T>* sums, std::int64_t count, const ProductEnd<T>& end, const T* bias,
            T* out) {
  using C = Computed<T>;
  std::int64_t i = 0;
  if (end.out_stride == 1 && (!bias || end.bias_stride == 1)) {
    for (; i + kLanes<T> <= count; i += kLanes<T>) {
      Vector<C> value = end.alpha * Load(sums + i);
      if (end.beta != 0) value += end.beta * Load(out + i);
      if (bias) value += Load(bias + i);
      Store(out + i, value);
    }
  }
  for (; i < count; ++i) {
    T* const place = out + i * end.out_stride;
    C value = end.alpha * sums[i];
    if (end.beta != 0) value += end.beta * static_cast<C>(*place);
    if (bias) value += static_cast<C>(bias[i * end.bias_stride]);
    *place = static_cast<T>(value);
  }
}

template <typename T>
constexpr ProductKernels<T> KernelsOf() {
  using C = Computed<T>;
  ProductKernels<T> kernels{kTileRows,           kTileColumns<C>,
                            &Pack<T, kTileRows>, &Pack<T, kTileColumns<C>>,
                            &MultiplyBlock<C>,   &Finish<T>};
  // Few rows are important for inference, which uses floats. Compiling these kernels takes long.
  if constexpr (!std::is_integral_v<T>) {
    kernels.convert = &Convert<T>;
    kernels.multiply_along = &MultiplyAlong<T>;
    kernels.multiply_across = &MultiplyAcross<T>;
  }
  return kernels;
}

}  // namespace infini::ops::cpu::INFINI_OPS_ISA
