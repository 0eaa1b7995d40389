#include "cpu/product.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

namespace infini::ops::cpu {
namespace {

// The epilogue: out = alpha * sums + beta * out + bias, along a row.
template <typename T>
struct ProductEnd {
  Computed<T> alpha;
  Computed<T> beta;
  std::int64_t out_stride;
  std::int64_t bias_stride;
};

// The kernels of product_kernels.h for one element type and instruction set.
template <typename T>
struct ProductKernels {
  using C = Computed<T>;
  using Pack = void (*)(const T* source, std::int64_t row_stride, std::int64_t k_stride,
                        std::int64_t count, std::int64_t k, C* packed);
  using MultiplyFew = void (*)(std::int64_t m, std::int64_t n, std::int64_t k, const C* a,
                               std::int64_t a_stride, const T* b, std::int64_t b_stride, C* sums,
                               std::int64_t row_size);

  std::int64_t tile_rows;
  std::int64_t tile_columns;
  Pack pack_rows;
  Pack pack_columns;
  void (*multiply_block)(std::int64_t m, std::int64_t n, std::int64_t k, const C* a,
                         std::int64_t a_step, const C* b, std::int64_t b_step, C* sums,
                         std::int64_t row_size, bool add);
  void (*finish)(const C* sums, std::int64_t count, const ProductEnd<T>& end, const T* bias,
                 T* out);
  // For floats only.
  void (*convert)(const T* source, std::int64_t count, C* target) = nullptr;
  MultiplyFew multiply_along = nullptr;
  MultiplyFew multiply_across = nullptr;
};

}  // namespace
}  // namespace infini::ops::cpu

#define INFINI_OPS_KERNELS "cpu/product_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// Number of multiplications for which an additional thread is worthwhile: some 10 us of work.
constexpr std::int64_t kMultiplicationsPerThread = 1 << 18;

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

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <typename T>
struct Matrix {
  T* At(std::int64_t i, std::int64_t j) const { return data + i * row_stride + j * column_stride; }
  Matrix Transposed() const { return {data, column_stride, row_stride}; }

  T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

// Uninitialized memory with the alignment of vectors.
template <typename C>
class Buffer {
 public:
  explicit Buffer(std::int64_t size)
      : data_(static_cast<C*>(::operator new(static_cast<std::size_t>(size) * sizeof(C), kAlign))) {
  }
  C* get() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Delete {
    void operator()(C* data) const { ::operator delete(data, kAlign); }
  };
  std::unique_ptr<C, Delete> data_;
};

// One product of two matrices.
template <typename T>
struct MatrixProduct {
  using C = Computed<T>;

  void Run() const {
    if (m == 0 || n == 0) return;
    const MatrixProduct transposed = Transposed();
    if (n < m && transposed.HasFewRows()) return transposed.RunFewRows();
    if (HasFewRows()) return RunFewRows();
    // Let the epilogue run along the rows of `out`.
    const bool has_columns = out.column_stride != 1 && out.row_stride == 1;
    return has_columns ? transposed.RunPacked() : RunPacked();
  }

  MatrixProduct Transposed() const {
    return {kernels,          n,     m,   k, b.Transposed(), a.Transposed(), bias.Transposed(),
            out.Transposed(), alpha, beta};
  }

  bool HasFewRows() const {
    if (!kernels.convert) return false;
    return (b.row_stride == 1 && m <= kFewRowsAlong) ||
           (b.column_stride == 1 && m <= kFewRowsAcross);
  }

  void RunFewRows() const;
  void MultiplyFewRows(std::int64_t begin, std::int64_t end, const C* rows,
                       std::int64_t row_size) const;
  void RunPacked() const;
  void Pack(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
            C* packed_a, C* packed_b) const;
  void MultiplyPacked(std::int64_t row, std::int64_t rows, std::int64_t column,
                      std::int64_t columns, const C* packed_a, const C* packed_b) const;
  // True if `out` is just the sums of whole tiles, which are then computed in place.
  bool IsFinal(std::int64_t rows, std::int64_t columns) const {
    return std::is_same_v<T, C> && alpha == 1 && beta == 0 && !bias.data &&
           out.column_stride == 1 && rows % kernels.tile_rows == 0 &&
           columns % kernels.tile_columns == 0;
  }
  // Sums of another type can't be computed in place.
  static C* SumsIn(T* place) {
    if constexpr (std::is_same_v<T, C>) return place;
    return nullptr;
  }
  void Finish(std::int64_t i, std::int64_t j, std::int64_t count, const C* sums) const {
    const ProductEnd<T> end{alpha, beta, out.column_stride, bias.column_stride};
    kernels.finish(sums, count, end, bias.data ? bias.At(i, j) : nullptr, out.At(i, j));
  }

  ProductKernels<T> kernels;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  Matrix<const T> a;
  Matrix<const T> b;
  Matrix<const T> bias;  // data is null if there is no bias
  Matrix<T> out;
  C alpha;
  C beta;
};

// Columns that are multiplied with few rows at a time.
constexpr std::int64_t kColumns = 64;
constexpr std::int64_t kMostColumns = 64 * kColumns;

// The number of rows for the few-row kernels: 1, or a multiple of four, padded with zeros.
constexpr std::int64_t FilledUp(std::int64_t m) { return m == 1 ? 1 : CeilDiv(m, 4) * 4; }

template <typename T>
void MatrixProduct<T>::RunFewRows() const {
  const std::int64_t row_size = CeilDiv(k, kColumns) * kColumns;
  const Buffer<C> rows(FilledUp(m) * row_size);
  for (std::int64_t i = 0; i < m; ++i) {
    C* const row = rows.get() + i * row_size;
    if (a.column_stride == 1) {
      kernels.convert(a.At(i, 0), k, row);
    } else {
      for (std::int64_t step = 0; step < k; ++step) row[step] = static_cast<C>(*a.At(i, step));
    }
    std::fill(row + k, row + row_size, C(0));
  }
  std::fill(rows.get() + m * row_size, rows.get() + FilledUp(m) * row_size, C(0));
  const std::int64_t grain =
      kMultiplicationsPerThread / (m * std::max<std::int64_t>(k, 1) * kColumns);
  ParallelFor(CeilDiv(n, kColumns), grain, [&](std::int64_t begin, std::int64_t end) {
    MultiplyFewRows(begin * kColumns, std::min(end * kColumns, n), rows.get(), row_size);
  });
}

template <typename T>
void MatrixProduct<T>::MultiplyFewRows(std::int64_t begin, std::int64_t end, const C* rows,
                                       std::int64_t row_size) const {
  const bool is_along = b.row_stride == 1;
  const auto multiply = is_along ? kernels.multiply_along : kernels.multiply_across;
  const std::int64_t b_stride = is_along ? b.column_stride : b.row_stride;
  const std::int64_t sums_size = std::min(kMostColumns, CeilDiv(end - begin, kColumns) * kColumns);
  const Buffer<C> sums(FilledUp(m) * sums_size);
  for (std::int64_t j = begin; j < end; j += kMostColumns) {
    const std::int64_t columns = std::min(kMostColumns, end - j);
    multiply(m, columns, k, rows, row_size, b.At(0, j), b_stride, sums.get(), sums_size);
    for (std::int64_t i = 0; i < m; ++i) Finish(i, j, columns, sums.get() + i * sums_size);
  }
}

template <typename T>
void MatrixProduct<T>::RunPacked() const {
  const std::int64_t most = kPackedElements / std::max<std::int64_t>(k, 1);
  const std::int64_t block_rows = kBlockTiles * kernels.tile_rows;
  const std::int64_t block_columns = kBlockTiles * kernels.tile_columns;
  const std::int64_t rows = std::min(m, CeilDiv(most, block_rows) * block_rows);
  const std::int64_t columns = std::min(n, CeilDiv(most, block_columns) * block_columns);
  // One allocation, which malloc can reuse the second time without a system call.
  const std::int64_t a_size = CeilDiv(rows, kernels.tile_rows) * kernels.tile_rows * k;
  const std::int64_t b_size = CeilDiv(columns, kernels.tile_columns) * kernels.tile_columns * k;
  const Buffer<C> packed(b_size + a_size);
  C* const packed_b = packed.get();
  C* const packed_a = packed_b + b_size;
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
template <typename T>
void MatrixProduct<T>::Pack(std::int64_t row, std::int64_t rows, std::int64_t column,
                            std::int64_t columns, C* packed_a, C* packed_b) const {
  const std::int64_t a_strips = CeilDiv(rows, kernels.tile_rows);
  const std::int64_t strips = a_strips + CeilDiv(columns, kernels.tile_columns);
  const std::int64_t grain =
      kMultiplicationsPerThread / 8 / (std::max<std::int64_t>(k, 1) * kernels.tile_columns);
  ParallelFor(strips, grain, [&](std::int64_t begin, std::int64_t end) {
    if (begin < a_strips) {
      const std::int64_t first = begin * kernels.tile_rows;
      const std::int64_t count = std::min(end * kernels.tile_rows, rows) - first;
      kernels.pack_rows(a.At(row + first, 0), a.row_stride, a.column_stride, count, k,
                        packed_a + first * k);
    }
    if (end > a_strips) {
      const std::int64_t first = std::max(begin - a_strips, std::int64_t{0}) * kernels.tile_columns;
      const std::int64_t last = std::min((end - a_strips) * kernels.tile_columns, columns);
      kernels.pack_columns(b.At(0, column + first), b.column_stride, b.row_stride, last - first, k,
                           packed_b + first * k);
    }
  });
}

// A grid of blocks over a part of `out`.
struct Grid {
  // Blocks have the maximum size, or are smaller if there would be fewer blocks than threads.
  template <typename T>
  Grid(const ProductKernels<T>& kernels, std::int64_t rows, std::int64_t columns)
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

template <typename T>
void MatrixProduct<T>::MultiplyPacked(std::int64_t row, std::int64_t rows, std::int64_t column,
                                      std::int64_t columns, const C* packed_a,
                                      const C* packed_b) const {
  const Grid grid(kernels, rows, columns);
  const std::int64_t grain = kMultiplicationsPerThread /
                             (grid.block_rows * grid.block_columns * std::max<std::int64_t>(k, 1));
  const std::int64_t down = CeilDiv(rows, grid.block_rows);
  ParallelFor(grid.Count(), grain, [&](std::int64_t begin, std::int64_t end) {
    const Buffer<C> sums(grid.block_rows * grid.block_columns);
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t i = block % down * grid.block_rows;
      const std::int64_t j = block / down * grid.block_columns;
      const std::int64_t height = std::min(grid.block_rows, rows - i);
      const std::int64_t width = std::min(grid.block_columns, columns - j);
      const bool is_final = IsFinal(height, width);
      C* const target = is_final ? SumsIn(out.At(row + i, column + j)) : sums.get();
      const std::int64_t row_size = is_final ? out.row_stride : grid.block_columns;
      std::int64_t step = 0;
      do {
        kernels.multiply_block(height, width, std::min(kSteps, k - step),
                               packed_a + i * k + step * kernels.tile_rows, kernels.tile_rows * k,
                               packed_b + j * k + step * kernels.tile_columns,
                               kernels.tile_columns * k, target, row_size, step > 0);
        step += kSteps;
      } while (step < k);
      for (std::int64_t line = 0; line < height && !is_final; ++line) {
        Finish(row + i + line, column + j, width, target + line * row_size);
      }
    }
  });
}

// One matrix of each operand for each index of a batch.
struct Batch {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides[4];  // of a, b, bias, out

  std::int64_t Count() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    return count;
  }

  std::int64_t Offset(std::size_t operand, std::int64_t index) const {
    std::int64_t offset = 0;
    for (std::size_t i = shape.size(); i-- > 0; index /= shape[i]) {
      offset += index % shape[i] * strides[operand][i];
    }
    return offset;
  }
};

// The tensor's stride in a leading dimension of `out`; 0 if the tensor repeats along it.
std::int64_t BatchStride(const Matrices& matrices, const Matrices& out, std::size_t dimension) {
  const std::size_t missing = out.stack_shape.size() - matrices.stack_shape.size();
  if (dimension < missing || matrices.stack_shape[dimension - missing] == 1) return 0;
  return matrices.stack_strides[dimension - missing];
}

Batch BatchOf(const Product& product) {
  const Matrices& bias = product.bias ? *product.bias : product.out;
  Batch batch;
  for (std::size_t i = 0; i < product.out.stack_shape.size(); ++i) {
    if (product.out.stack_shape[i] == 1) continue;
    batch.shape.push_back(product.out.stack_shape[i]);
    const Matrices* const operands[] = {&product.a, &product.b, &bias, &product.out};
    for (std::size_t operand = 0; operand < 4; ++operand) {
      batch.strides[operand].push_back(BatchStride(*operands[operand], product.out, i));
    }
  }
  return batch;
}

template <typename T>
Matrix<T> MatrixOf(const Matrices& matrices) {
  const auto stride = [](const Matrices::Dimension& dimension) {
    return dimension.size == 1 ? 0 : dimension.stride;
  };
  return {static_cast<T*>(matrices.data), stride(matrices.rows), stride(matrices.columns)};
}

// Merges matrices that are stacked in memory and are multiplied with the same `b` into one matrix.
template <typename T>
void Merge(MatrixProduct<T>* one, Batch* batch) {
  while (!batch->shape.empty()) {
    const auto stride = [&](std::size_t operand) { return batch->strides[operand].back(); };
    const bool repeats =
        stride(1) == 0 && (!one->bias.data || (stride(2) == 0 && one->bias.row_stride == 0));
    const bool continues =
        stride(0) == one->m * one->a.row_stride && stride(3) == one->m * one->out.row_stride;
    // The stride of a single row has no meaning.
    if (!repeats || (one->m != 1 && !continues)) return;
    if (one->m == 1) {
      one->a.row_stride = stride(0);
      one->out.row_stride = stride(3);
    }
    one->m *= batch->shape.back();
    batch->shape.pop_back();
    for (std::vector<std::int64_t>& strides : batch->strides) strides.pop_back();
  }
}

template <typename T>
MatrixProduct<T> At(const MatrixProduct<T>& first, const Batch& batch, std::int64_t i) {
  MatrixProduct<T> one = first;
  one.a.data += batch.Offset(0, i);
  one.b.data += batch.Offset(1, i);
  if (one.bias.data) one.bias.data += batch.Offset(2, i);
  one.out.data += batch.Offset(3, i);
  return one;
}

template <typename T>
void RunBatch(const MatrixProduct<T>& first, const Batch& batch) {
  const std::int64_t count = batch.Count();
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

// Up to this number, our kernels take less time than torch needs to prepare a call of its BLAS.
constexpr std::int64_t kBlasMultiplications = 16 * 16 * 16;

// With few rows and at least this many elements of the other operand, our kernels are 1.5 to 2
// times as fast as MKL. With fewer elements they have half of MKL's speed, or the same for one row.
constexpr std::int64_t kFewRowsOfBlas = 8;
constexpr std::int64_t kElementsOfFewRows = 1 << 20;

// True if a library can use the matrix in place; otherwise torch would copy it.
template <typename T>
bool IsForBlas(const Matrix<T>& matrix, std::int64_t rows, std::int64_t columns) {
  const auto is_along = [](std::int64_t inner, std::int64_t inner_size, std::int64_t outer,
                           std::int64_t outer_size) {
    return (inner == 1 || inner_size == 1) && (outer >= inner_size || outer_size == 1);
  };
  return is_along(matrix.column_stride, columns, matrix.row_stride, rows) ||
         is_along(matrix.row_stride, rows, matrix.column_stride, columns);
}

// True for sizes for which torch's library is faster than our kernels.
template <typename T>
bool IsFasterOnTorch(const MatrixProduct<T>& one, const Batch& batch) {
  const std::int64_t rows = std::min(one.m, one.n);
  if (!std::is_same_v<T, Computed<T>>) {
    return rows > kFewRowsAcross && one.m * one.n * one.k * batch.Count() >= kOneDnnMultiplications;
  }
  if (one.m * one.n * one.k * batch.Count() <= kBlasMultiplications) return false;
  const bool has_few = one.n < one.m ? one.Transposed().HasFewRows() : one.HasFewRows();
  return !has_few || rows == 1 || rows > kFewRowsOfBlas ||
         one.k * std::max(one.m, one.n) < kElementsOfFewRows;
}

// True if torch can use every operand. It has no negative strides, and it copies operands with
// strides that a library does not support.
template <typename T>
bool IsForTorch(const MatrixProduct<T>& one, const Batch& batch) {
  if (one.m == 0 || one.n == 0 || one.k == 0) return false;
  for (const std::vector<std::int64_t>& strides : batch.strides) {
    if (std::any_of(strides.begin(), strides.end(), [](auto stride) { return stride < 0; })) {
      return false;
    }
  }
  return IsForBlas(one.a, one.m, one.k) && IsForBlas(one.b, one.k, one.n) &&
         IsForBlas(one.out, one.m, one.n) && (!one.bias.data || one.bias.column_stride >= 0);
}

// `rows` x `columns`, for as many matrices as the last dimension of the batch has.
template <typename T>
Tensor ViewOf(const Matrix<T>& matrix, std::int64_t rows, std::int64_t columns, const Batch& batch,
              std::size_t operand, DataType type) {
  const bool is_stack = !batch.shape.empty();
  const std::int64_t shape[] = {is_stack ? batch.shape.back() : 1, rows, columns};
  // The strides of single rows and columns affect torch's choice of a kernel.
  const std::int64_t alone = matrix.column_stride > 1 ? 1 : columns;
  const std::int64_t strides[] = {is_stack ? batch.strides[operand].back() : 0,
                                  rows == 1 ? alone : matrix.row_stride,
                                  columns == 1 ? 1 : matrix.column_stride};
  const std::size_t dimensions = is_stack ? 3 : 2;
  return {const_cast<std::remove_const_t<T>*>(matrix.data),
          {shape + 3 - dimensions, dimensions},
          {strides + 3 - dimensions, dimensions},
          type};
}

template <typename T>
void RunOnTorch(const MatrixProduct<T>& first, const Batch& batch, DataType type) {
  const std::int64_t at_once = batch.shape.empty() ? 1 : batch.shape.back();
  for (std::int64_t i = 0; i < batch.Count(); i += at_once) {
    const MatrixProduct<T> one = At(first, batch, i);
    const Tensor a = ViewOf(one.a, one.m, one.k, batch, 0, type);
    const Tensor b = ViewOf(one.b, one.k, one.n, batch, 1, type);
    const Tensor out = ViewOf(one.out, one.m, one.n, batch, 3, type);
    if (one.bias.data) {
      const Tensor bias = ViewOf(one.bias, one.m, one.n, batch, 2, type);
      torch_backend::Multiply(a, b, bias, one.alpha, 1, out);
    } else {
      torch_backend::Multiply(a, b, out, one.alpha, one.beta, out);
    }
  }
}

#endif  // INFINI_OPS_WITH_TORCH

template <typename T>
void RunProduct(const Product& product) {
  using C = Computed<T>;
  const C alpha = product.alpha.To<C>();
  const Matrix<const T> no_bias{nullptr, 0, 0};
  MatrixProduct<T> one{
      INFINI_OPS_KERNEL(KernelsOf<T>()), product.out.rows.size, product.out.columns.size,
      // As in BLAS, a factor that is multiplied by 0 is not read.
      alpha == 0 ? 0 : product.a.columns.size, MatrixOf<const T>(product.a),
      MatrixOf<const T>(product.b), product.bias ? MatrixOf<const T>(*product.bias) : no_bias,
      MatrixOf<T>(product.out), alpha, product.beta.To<C>()};
  Batch batch = BatchOf(product);
  Merge(&one, &batch);
#ifdef INFINI_OPS_WITH_TORCH
  if constexpr (std::is_floating_point_v<C>) {
    if (torch_backend::HasFastProducts(product.type) && IsFasterOnTorch(one, batch) &&
        IsForTorch(one, batch)) {
      return RunOnTorch(one, batch, product.type);
    }
  }
#endif
  RunBatch(one, batch);
}

// The tensor's size in a leading dimension of `out`.
std::int64_t BatchSize(const Matrices& matrices, const Matrices& out, std::size_t dimension) {
  const std::size_t missing = out.stack_shape.size() - matrices.stack_shape.size();
  return dimension < missing ? 1 : matrices.stack_shape[dimension - missing];
}

// True if the leading dimensions of `out` are exactly the broadcast ones of the inputs.
bool HasBroadcastShape(const Matrices& a, const Matrices& b, const Matrices& out) {
  if (out.stack_shape.size() != std::max(a.stack_shape.size(), b.stack_shape.size())) return false;
  for (std::size_t i = 0; i < out.stack_shape.size(); ++i) {
    const std::int64_t x = BatchSize(a, out, i);
    const std::int64_t y = BatchSize(b, out, i);
    if ((x != y && x != 1 && y != 1) || out.stack_shape[i] != (x == 1 ? y : x)) return false;
  }
  return true;
}

}  // namespace

Matrices::Matrices(const Tensor& tensor, bool has_rows, bool has_columns) : data(tensor.data()) {
  const Span<std::int64_t> shape = tensor.shape();
  const Span<std::int64_t> strides = tensor.strides();
  std::size_t last = shape.size();
  is_valid = last >= static_cast<std::size_t>(has_rows) + static_cast<std::size_t>(has_columns);
  if (!is_valid) return;
  if (has_columns) {
    --last;
    columns = {shape[last], strides[last]};
  }
  if (has_rows) {
    --last;
    rows = {shape[last], strides[last]};
  }
  stack_shape = {shape.data(), last};
  stack_strides = {strides.data(), last};
}

Matrices Matrices::Transposed() const {
  Matrices result = *this;
  std::swap(result.rows, result.columns);
  return result;
}

bool Product::HasFittingShapes() const {
  if (!a.is_valid || !b.is_valid || !out.is_valid || (bias && !bias->is_valid)) return false;
  if (a.rows.size != out.rows.size || b.columns.size != out.columns.size ||
      a.columns.size != b.rows.size) {
    return false;
  }
  if (bias && (bias->rows.size != 1 || bias->columns.size != out.columns.size)) return false;
  return HasBroadcastShape(a, b, out);
}

bool Product::HasFittingScalars() const {
  return IsRealType(type) && IsFactor(alpha, type) && IsFactor(beta, type);
}

void Product::Run() const {
  WithRealType(type, [&](auto* element) {
    RunProduct<std::remove_pointer_t<decltype(element)>>(*this);
    return true;
  });
}

}  // namespace infini::ops::cpu
