#include "cpu/product.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/product_parts.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

#define INFINI_OPS_KERNELS "cpu/product_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// Copying so few elements of a small product, or for so many rows, takes a small part of its time.
constexpr std::int64_t kCopiedElements = 1024;
constexpr std::int64_t kRowsOfCopy = 32;

// With at most this many rows, reading `b` in place is faster than packing it: the limits for
// contiguous columns and for contiguous rows.
constexpr std::int64_t kFewRowsAlong = 16;
constexpr std::int64_t kFewRowsAcross = 4;

// Steps along k per tile: a strip of `b` stays in the first-level cache.
constexpr std::int64_t kSteps = 256;

// Tiles of a block in each direction: the block with its parts of `a` and `b` stays in the
// second-level cache.
constexpr std::int64_t kBlockTiles = 8;

// Elements of `a` and of `b` packed at a time. This limits memory and has no effect on speed.
constexpr std::int64_t kPackedElements = 1 << 23;

// True if the bits of an element may depend on its row and its column alone. The fast path of a
// product depends on its size, and each path has another order of sums.
bool IsBatchInvariant() {
  static const bool is_invariant = [] {
    const char* const value = std::getenv("INFINI_OPS_BATCH_INVARIANT");
    return value && std::string_view(value) == "1";
  }();
  return is_invariant;
}

// One product of two matrices, of any element type.
struct MatrixProduct {
  void Run() const {
    if (m == 0 || n == 0) return;
    const MatrixProduct oriented = Oriented();
    if (IsBatchInvariant()) return oriented.RunPacked();
    if (oriented.CanRunInPlace()) return oriented.RunInPlace();
    const MatrixProduct transposed = Transposed();
    if (n < m && transposed.HasFewRows()) return transposed.RunFewRows();
    if (HasFewRows()) return RunFewRows();
    oriented.RunPacked();
  }

  MatrixProduct Transposed() const {
    return {kernels,          n,     m,   k, b.Transposed(), a.Transposed(), bias.Transposed(),
            out.Transposed(), alpha, beta};
  }

  // Such that the epilogue runs along the rows of `out`.
  MatrixProduct Oriented() const {
    return out.column_stride != 1 && out.row_stride == 1 ? Transposed() : *this;
  }

  // True if the elements should be multiplied where they are. With fewer steps, storing `out` takes
  // most of the time. A `b` that is not contiguous is copied.
  bool CanRunInPlace() const {
    return kernels->multiply_in_place && m >= kernels->tile_rows / 3 && k >= 4 &&
           m * n * k <= kernels->small_multiplications &&
           (b.column_stride == 1 || (n >= 4 && (k * n <= kCopiedElements || m >= kRowsOfCopy)));
  }

  bool HasFewRows() const {
    if (!kernels->multiply_along) return false;
    return (b.row_stride == 1 && m <= kFewRowsAlong) ||
           (b.column_stride == 1 && m <= kFewRowsAcross);
  }

  // An element of `a` or `b`.
  char* At(const Matrix& matrix, std::int64_t i, std::int64_t j) const {
    return matrix.data + (i * matrix.row_stride + j * matrix.column_stride) * kernels->element_size;
  }
  // An element of `out` or `bias`.
  char* OutAt(const Matrix& matrix, std::int64_t i, std::int64_t j) const {
    return matrix.data + (i * matrix.row_stride + j * matrix.column_stride) * kernels->out_size;
  }

  void RunFewRows() const;
  void MultiplyFewRows(std::int64_t begin, std::int64_t end, const char* rows,
                       std::int64_t row_size) const;
  void RunInPlace() const;
  void RunPacked() const;
  void Pack(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
            char* packed_a, char* packed_b) const;
  void MultiplyPacked(std::int64_t row, std::int64_t rows, std::int64_t column,
                      std::int64_t columns, const char* packed_a, const char* packed_b) const;
  // True if `out` is just the sums, which are then computed in place.
  bool IsJustSums() const {
    return kernels->out_size == kernels->sum_size && alpha.To<double>() == 1 &&
           beta.To<double>() == 0 && !bias.data && out.column_stride == 1;
  }
  void Finish(std::int64_t i, std::int64_t j, std::int64_t rows, std::int64_t columns,
              const char* sums, std::int64_t row_size) const {
    ProductEnd end{alpha, beta, bias, out};
    end.out.data = OutAt(out, i, j);
    if (bias.data) end.bias.data = OutAt(bias, i, j);
    kernels->finish(rows, columns, sums, row_size, end);
  }

  const ProductKernels* kernels;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Matrix a;
  Matrix b;
  Matrix bias;  // data is null if there is no bias
  Matrix out;
  Scalar alpha;
  Scalar beta;
};

// Columns that are multiplied with few rows at a time.
constexpr std::int64_t kColumns = 64;
constexpr std::int64_t kMostColumns = 64 * kColumns;

void MatrixProduct::RunFewRows() const {
  const std::int64_t row_size = CeilDiv(k, kColumns) * kColumns;
  const std::int64_t row_bytes = row_size * kernels->sum_size;
  const Buffer rows(FilledUp(m) * row_bytes);
  kernels->convert(At(a, 0, 0), a.row_stride, a.column_stride, m, k, rows.get(), row_size);
  for (std::int64_t i = 0; i < FilledUp(m); ++i) {
    const std::int64_t filled = i < m ? k * kernels->sum_size : 0;
    std::fill_n(rows.get() + i * row_bytes + filled, row_bytes - filled, 0);
  }
  const std::int64_t grain =
      kMultiplicationsPerThread / (m * std::max<std::int64_t>(k, 1) * kColumns);
  ParallelFor(CeilDiv(n, kColumns), grain, [&](std::int64_t begin, std::int64_t end) {
    MultiplyFewRows(begin * kColumns, std::min(end * kColumns, n), rows.get(), row_size);
  });
}

void MatrixProduct::MultiplyFewRows(std::int64_t begin, std::int64_t end, const char* rows,
                                    std::int64_t row_size) const {
  const bool is_along = b.row_stride == 1;
  const std::int64_t b_stride = is_along ? b.column_stride : b.row_stride;
  const std::int64_t sums_size = std::min(kMostColumns, CeilDiv(end - begin, kColumns) * kColumns);
  const Buffer sums(FilledUp(m) * sums_size * kernels->sum_size);
  for (std::int64_t j = begin; j < end; j += kMostColumns) {
    const std::int64_t columns = std::min(kMostColumns, end - j);
    const char* const source = At(b, 0, j);
    if (is_along) {
      kernels->multiply_along(m, columns, k, rows, row_size, source, b_stride, sums.get(),
                              sums_size);
    } else {
      kernels->multiply_across(m, columns, k, rows, row_size, source, b_stride, sums.get(),
                               sums_size, false);
    }
    Finish(0, j, m, columns, sums.get(), sums_size);
  }
}

void MatrixProduct::RunInPlace() const {
  const std::int64_t size = kernels->sum_size;
  const std::int64_t strip = kernels->tile_columns;
  const bool is_just_sums = IsJustSums();
  const bool needs_no_buffer = is_just_sums && b.column_stride == 1 && n % kernels->lanes == 0;
  const Buffer buffer(needs_no_buffer ? 0 : (k + m) * strip * size);
  for (std::int64_t j = 0; j < n; j += strip) {
    const std::int64_t columns = std::min(strip, n - j);
    const bool is_whole = columns % kernels->lanes == 0;
    const bool is_final = is_just_sums && is_whole;
    const bool is_copied = b.column_stride != 1 || !is_whole;
    const char* source = At(b, 0, j);
    if (is_copied) {
      kernels->pack_columns(*kernels, source, b.column_stride, b.row_stride, columns, k,
                            buffer.get());
      source = buffer.get();
    }
    char* const target = is_final ? OutAt(out, 0, j) : buffer.get() + k * strip * size;
    const std::int64_t row_size = is_final ? out.row_stride : strip;
    kernels->multiply_in_place(m, columns, k, a.data, a.row_stride, a.column_stride, source,
                               is_copied ? strip : b.row_stride, target, row_size);
    if (!is_final) Finish(0, j, m, columns, target, row_size);
  }
}

void MatrixProduct::RunPacked() const {
  const std::int64_t most = kPackedElements / std::max<std::int64_t>(k, 1);
  const std::int64_t block_rows = kBlockTiles * kernels->tile_rows;
  const std::int64_t block_columns = kBlockTiles * kernels->tile_columns;
  const std::int64_t rows = std::min(m, CeilDiv(most, block_rows) * block_rows);
  const std::int64_t columns = std::min(n, CeilDiv(most, block_columns) * block_columns);
  // One allocation, which malloc can reuse the second time without a system call.
  const std::int64_t a_size = CeilDiv(rows, kernels->tile_rows) * kernels->tile_rows * k;
  const std::int64_t b_size = CeilDiv(columns, kernels->tile_columns) * kernels->tile_columns * k;
  const Buffer packed((b_size + a_size) * kernels->sum_size);
  char* const packed_b = packed.get();
  char* const packed_a = packed_b + b_size * kernels->sum_size;
  for (std::int64_t column = 0; column < n; column += columns) {
    for (std::int64_t row = 0; row < m; row += rows) {
      const std::int64_t to_pack = row == 0 ? std::min(columns, n - column) : 0;
      const std::int64_t height = std::min(rows, m - row);
      Pack(row, height, column, to_pack, packed_a, packed_b);
      MultiplyPacked(row, height, column, std::min(columns, n - column), packed_a, packed_b);
    }
  }
}

// Strips of `rows` rows of `a` and of `columns` columns of `b`.
void MatrixProduct::Pack(std::int64_t row, std::int64_t rows, std::int64_t column,
                         std::int64_t columns, char* packed_a, char* packed_b) const {
  const std::int64_t a_strips = CeilDiv(rows, kernels->tile_rows);
  const std::int64_t strips = a_strips + CeilDiv(columns, kernels->tile_columns);
  const std::int64_t grain =
      kMultiplicationsPerThread / 8 / (std::max<std::int64_t>(k, 1) * kernels->tile_columns);
  ParallelFor(strips, grain, [&](std::int64_t begin, std::int64_t end) {
    if (begin < a_strips) {
      const std::int64_t first = begin * kernels->tile_rows;
      const std::int64_t count = std::min(end * kernels->tile_rows, rows) - first;
      kernels->pack_rows(*kernels, At(a, row + first, 0), a.row_stride, a.column_stride, count, k,
                         packed_a + first * k * kernels->sum_size);
    }
    if (end > a_strips) {
      const std::int64_t first =
          std::max(begin - a_strips, std::int64_t{0}) * kernels->tile_columns;
      const std::int64_t last = std::min((end - a_strips) * kernels->tile_columns, columns);
      kernels->pack_columns(*kernels, At(b, 0, column + first), b.column_stride, b.row_stride,
                            last - first, k, packed_b + first * k * kernels->sum_size);
    }
  });
}

// A grid of blocks over a part of `out`.
struct Grid {
  // Blocks have the maximum size, or are smaller if there would be fewer blocks than threads.
  Grid(const ProductKernels& kernels, std::int64_t rows, std::int64_t columns)
      : block_rows(kBlockTiles * kernels.tile_rows),
        block_columns(kBlockTiles * kernels.tile_columns),
        rows(rows),
        columns(columns) {
    const std::int64_t enough = 4 * ThreadCount();
    while (Count() < enough && block_columns > kernels.tile_columns) block_columns /= 2;
    while (Count() < enough && block_rows > kernels.tile_rows) block_rows /= 2;
  }

  std::int64_t Count() const { return CeilDiv(rows, block_rows) * CeilDiv(columns, block_columns); }

  std::int64_t block_rows;
  std::int64_t block_columns;
  std::int64_t rows;
  std::int64_t columns;
};

void MatrixProduct::MultiplyPacked(std::int64_t row, std::int64_t rows, std::int64_t column,
                                   std::int64_t columns, const char* packed_a,
                                   const char* packed_b) const {
  const Grid grid(*kernels, rows, columns);
  const std::int64_t grain = kMultiplicationsPerThread /
                             (grid.block_rows * grid.block_columns * std::max<std::int64_t>(k, 1));
  const std::int64_t down = CeilDiv(rows, grid.block_rows);
  const bool is_just_sums = IsJustSums();
  ParallelFor(grid.Count(), grain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t size = kernels->sum_size;
    const Buffer sums(grid.block_rows * grid.block_columns * size);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t i = block % down * grid.block_rows;
      const std::int64_t j = block / down * grid.block_columns;
      const std::int64_t height = std::min(grid.block_rows, rows - i);
      const std::int64_t width = std::min(grid.block_columns, columns - j);
      const bool is_final =
          is_just_sums && height % kernels->tile_rows == 0 && width % kernels->tile_columns == 0;
      char* const target = is_final ? OutAt(out, row + i, column + j) : sums.get();
      const std::int64_t row_size = is_final ? out.row_stride : grid.block_columns;
      std::int64_t step = 0;
      do {
        kernels->multiply_block(height, width, std::min(kSteps, k - step),
                                packed_a + (i * k + step * kernels->tile_rows) * size,
                                kernels->tile_rows * k,
                                packed_b + (j * k + step * kernels->tile_columns) * size,
                                kernels->tile_columns * k, target, row_size, step > 0);
        step += kSteps;
      } while (step < k);
      if (!is_final) Finish(row + i, column + j, height, width, target, row_size);
    }
  });
}

using Batch = decltype(Product::batch);

MatrixProduct At(const MatrixProduct& first, const Batch& batch, std::int64_t index) {
  MatrixProduct one = first;
  for (int i = 0; i < batch.rank; index /= batch.sizes[i++]) {
    const std::int64_t place = index % batch.sizes[i];
    one.a.data += place * batch.strides[Product::kA][i];
    one.b.data += place * batch.strides[Product::kB][i];
    one.out.data += place * batch.strides[Product::kOut][i];
    if (one.bias.data) one.bias.data += place * batch.strides[Product::kBias][i];
  }
  return one;
}

void RunBatch(const MatrixProduct& first, const Batch& batch) {
  const std::int64_t count = batch.count();
  const std::int64_t multiplications = std::max<std::int64_t>(first.m * first.n * first.k, 1);
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) At(first, batch, i).Run();
  };
  // Many small products run in parallel. Large ones run one after the other, each on all threads.
  const bool is_many = count >= 4 * ThreadCount() || multiplications < kMultiplicationsPerThread;
  if (!is_many) return run(0, count);
  ParallelFor(count, kMultiplicationsPerThread / multiplications, run);
}

#ifdef INFINI_OPS_WITH_TORCH

// Number of multiplications for which oneDNN's start-up time of 15 us is worthwhile.
constexpr std::int64_t kOneDnnMultiplications = 1 << 20;

// With few rows and at least this many elements of the other operand, our kernels are 1.5 to 2
// times as fast as MKL. With fewer elements they have half of MKL's speed, or the same for one row.
constexpr std::int64_t kFewRowsOfBlas = 8;
constexpr std::int64_t kElementsOfFewRows = 1 << 20;

// True if a library can use the matrix in place; otherwise torch would copy it.
bool IsForBlas(const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
  const auto is_along = [](std::int64_t inner, std::int64_t inner_size, std::int64_t outer,
                           std::int64_t outer_size) {
    return (inner == 1 || inner_size == 1) && (outer >= inner_size || outer_size == 1);
  };
  return is_along(matrix.column_stride, columns, matrix.row_stride, rows) ||
         is_along(matrix.row_stride, rows, matrix.column_stride, columns);
}

// True for sizes for which torch's library is faster than our kernels.
bool IsFasterOnTorch(const MatrixProduct& one, const Batch& batch) {
  const std::int64_t rows = std::min(one.m, one.n);
  if (one.kernels->converts()) {
    return rows > kFewRowsAcross && one.m * one.n * one.k * batch.count() >= kOneDnnMultiplications;
  }
  const std::int64_t multiplications = one.m * one.n * one.k * batch.count();
  if (multiplications <= one.kernels->small_multiplications && one.Oriented().CanRunInPlace()) {
    return false;
  }
  const bool has_few = one.n < one.m ? one.Transposed().HasFewRows() : one.HasFewRows();
  return !has_few || rows == 1 || rows > kFewRowsOfBlas ||
         one.k * std::max(one.m, one.n) < kElementsOfFewRows;
}

// True if torch can use every operand. It has no negative strides, and it copies operands with
// strides that a library does not support.
bool IsForTorch(const MatrixProduct& one, const Batch& batch) {
  if (one.m == 0 || one.n == 0 || one.k == 0) return false;
  for (const auto& strides : batch.strides) {
    if (std::any_of(strides, strides + batch.rank, [](auto stride) { return stride < 0; })) {
      return false;
    }
  }
  return IsForBlas(one.a, one.m, one.k) && IsForBlas(one.b, one.k, one.n) &&
         IsForBlas(one.out, one.m, one.n) && (!one.bias.data || one.bias.column_stride >= 0);
}

// `rows` x `columns`, for as many matrices as the first dimension of the batch has.
Tensor ViewOf(const Matrix& matrix, std::int64_t rows, std::int64_t columns, const Batch& batch,
              Product::Operand operand, DataType type) {
  const bool is_stack = batch.rank > 0;
  const auto size = static_cast<std::int64_t>(DataTypeSize(type));
  const std::int64_t shape[] = {is_stack ? batch.sizes[0] : 1, rows, columns};
  // The strides of single rows and columns affect torch's choice of a kernel.
  const std::int64_t alone = matrix.column_stride > 1 ? 1 : columns;
  const std::int64_t strides[] = {is_stack ? batch.strides[operand][0] / size : 0,
                                  rows == 1 ? alone : matrix.row_stride,
                                  columns == 1 ? 1 : matrix.column_stride};
  const std::size_t dimensions = is_stack ? 3 : 2;
  return {matrix.data,
          {shape + 3 - dimensions, dimensions},
          {strides + 3 - dimensions, dimensions},
          type};
}

void RunOnTorch(const MatrixProduct& first, const Batch& batch, DataType type) {
  const std::int64_t at_once = batch.rank == 0 ? 1 : batch.sizes[0];
  for (std::int64_t i = 0; i < batch.count(); i += at_once) {
    const MatrixProduct one = At(first, batch, i);
    const Tensor a = ViewOf(one.a, one.m, one.k, batch, Product::kA, type);
    const Tensor b = ViewOf(one.b, one.k, one.n, batch, Product::kB, type);
    const Tensor out = ViewOf(one.out, one.m, one.n, batch, Product::kOut, type);
    if (one.bias.data) {
      const Tensor bias = ViewOf(one.bias, one.m, one.n, batch, Product::kBias, type);
      torch_backend::Multiply(a, b, bias, one.alpha, 1, out);
    } else {
      torch_backend::Multiply(a, b, out, one.alpha, one.beta, out);
    }
  }
}

#endif  // INFINI_OPS_WITH_TORCH

}  // namespace

const ProductKernels& ProductKernelsOf(DataType type) {
  return *WithRealType(type, [](auto* element) {
    return &INFINI_OPS_KERNEL(kProductKernels<ElementOf<decltype(element)>>);
  });
}

void MultiplyFloat8(const Matrix& a, const Matrix& b, const Matrix& out) {
  if (out.rows == 0 || out.columns == 0) return;
  const ProductKernels* const kernels = &INFINI_OPS_KERNEL(kFloat8Kernels);
  const MatrixProduct product{kernels, out.rows, out.columns, a.columns, a, b, {}, out, 1, 0};
  product.RunPacked();
}

void Multiply(const Invocation& call, ProductOf product_of) {
  Product product;
  product_of(call, &product);
  Multiply(product);
}

void Multiply(Product product) {
  const DataType type = product.type;
  const ProductKernels* const kernels = &ProductKernelsOf(type);
  product.MergeBatchIntoRows();
  const Scalar& alpha = product.alpha;
  // As in BLAS, a factor that is multiplied by 0 is not read. Float32 has the fewest numbers that
  // are not 0.
  const bool is_zero = kernels->sum_size == 4 ? alpha.To<float>() == 0 : alpha.To<double>() == 0;
  const MatrixProduct one{
      kernels,   product.out.rows, product.out.columns, is_zero ? 0 : product.a.columns,
      product.a, product.b,        product.bias,        product.out,
      alpha,     product.beta};
#ifdef INFINI_OPS_WITH_TORCH
  if (!IsBatchInvariant() && torch_backend::HasFastProducts(type) &&
      IsFasterOnTorch(one, product.batch) && IsForTorch(one, product.batch)) {
    return RunOnTorch(one, product.batch, type);
  }
#endif
  RunBatch(one, product.batch);
}

}  // namespace infini::ops::cpu
