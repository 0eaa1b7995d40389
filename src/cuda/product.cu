#include <algorithm>
#include <limits>
#include <optional>

#include "cuda/blas.h"
#include "cuda/product.h"
#include "cuda/types.h"

namespace infini::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();  // of BLAS and grids

std::int64_t CountOf(const Product& product) {
  return product.out.rows * product.out.columns * product.batch.count();
}

Product Transposed(Product product) {
  product.Transpose();
  return product;
}

// The matrix as column-major, as BLAS needs it; nothing if its columns are not contiguous.
std::optional<BlasMatrix> InColumns(const Matrix& matrix, std::int64_t step) {
  const std::int64_t leading = matrix.columns == 1 ? matrix.rows : matrix.column_stride;
  const bool is_contiguous = matrix.rows == 1 || matrix.row_stride == 1;
  if (!is_contiguous || leading < matrix.rows || leading > kMaxSize) return std::nullopt;
  return BlasMatrix{matrix.data, leading, step, false};
}

// A single row is treated as one transposed column, because many columns would count as badly
// aligned.
std::optional<BlasMatrix> InColumnsOrRows(const Matrix& matrix, std::int64_t step) {
  const bool is_row = matrix.rows == 1 && matrix.column_stride == 1;
  const auto in_columns = is_row ? std::nullopt : InColumns(matrix, step);
  if (in_columns) return in_columns;
  auto in_rows = InColumns(matrix.Transposed(), step);
  if (in_rows) in_rows->transposed = true;
  return in_rows;
}

// Handles only the first dimension of the batch.
std::optional<BlasProduct> ForBlas(const Product& product) {
  const bool is_batch = product.batch.rank > 0;
  const std::int64_t batch_size = is_batch ? product.batch.sizes[0] : 1;
  const std::int64_t m = product.out.rows, n = product.out.columns, k = product.a.columns;
  if (std::max({m, n, k, batch_size}) > kMaxSize) return std::nullopt;
  const auto step = [&](Product::Operand operand) {
    return is_batch ? product.Step(operand, 0) : 0;
  };
  const auto out = InColumns(product.out, step(Product::kOut));
  const auto a = InColumnsOrRows(product.a, step(Product::kA));
  const auto b = InColumnsOrRows(product.b, step(Product::kB));
  if (!out || !a || !b) return std::nullopt;
  return BlasProduct{product.type,
                     m,
                     n,
                     k,
                     batch_size,
                     *a,
                     *b,
                     *out,
                     product.alpha.To<double>(),
                     product.beta.To<double>()};
}

void MakeLongestBatchDimensionFirst(Geometry<4>& batch) {
  const auto* longest = std::max_element(batch.sizes, batch.sizes + batch.rank);
  if (batch.rank > 0) batch.SwapDimensions(0, static_cast<int>(longest - batch.sizes));
}

void Advance(BlasMatrix& matrix, std::int64_t bytes) {
  matrix.data = static_cast<char*>(matrix.data) + bytes;
}

// One call for each index of the other dimensions of the batch.
void MultiplyBatch(const Blas& blas, const BlasProduct& first, const Geometry<4>& batch) {
  std::int64_t calls = 1;
  for (int d = 1; d < batch.rank; ++d) calls *= batch.sizes[d];
  for (std::int64_t call = 0; call < calls; ++call) {
    BlasProduct at = first;
    std::int64_t rest = call;
    for (int d = 1; d < batch.rank; rest /= batch.sizes[d++]) {
      const std::int64_t index = rest % batch.sizes[d];
      Advance(at.a, index * batch.strides[Product::kA][d]);
      Advance(at.b, index * batch.strides[Product::kB][d]);
      Advance(at.out, index * batch.strides[Product::kOut][d]);
    }
    blas.Multiply(at);
  }
}

// One thread per element of `out`.
template <typename T>
__global__ void MultiplySimply(const Product product, std::int64_t count, Computed<T> alpha,
                               Computed<T> beta) {
  using A = Computed<T>;
  const Geometry<4>& batch = product.batch;
  const std::int64_t m = product.out.rows, n = product.out.columns, k = product.a.columns;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += step) {
    const std::int64_t column = i % n;
    const std::int64_t row = i / n % m;
    std::int64_t rest = i / n / m;
    std::int64_t offsets[3] = {};
    for (int d = 0; d < batch.rank; rest /= batch.sizes[d++]) {
      const std::int64_t index = rest % batch.sizes[d];
      for (int operand = 0; operand < 3; ++operand) {
        offsets[operand] += index * batch.strides[operand][d];
      }
    }
    const T* a = reinterpret_cast<const T*>(product.a.data + offsets[Product::kA]) +
                 row * product.a.row_stride;
    const T* b = reinterpret_cast<const T*>(product.b.data + offsets[Product::kB]) +
                 column * product.b.column_stride;
    T* out = reinterpret_cast<T*>(product.out.data + offsets[Product::kOut]) +
             row * product.out.row_stride + column * product.out.column_stride;
    A sum = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      sum += static_cast<A>(a[j * product.a.column_stride]) *
             static_cast<A>(b[j * product.b.row_stride]);
    }
    sum *= alpha;
    if (beta != 0) sum += beta * static_cast<A>(*out);
    if (product.bias.data) {
      const T* bias = reinterpret_cast<const T*>(product.bias.data);
      sum += static_cast<A>(bias[column * product.bias.column_stride]);
    }
    *out = static_cast<T>(sum);
  }
}

void MultiplySimply(Stream stream, const Product& product) {
  const std::int64_t count = CountOf(product);
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxSize));
  WithFloatType(product.type, [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    Launch(MultiplySimply<T>, dim3(blocks), dim3(kThreads), 0, stream, product, count,
           product.alpha.To<Computed<T>>(), product.beta.To<Computed<T>>());
  });
}

// Computes out = beta * out + bias, so that only the product remains to be added.
void StartWithBias(Stream stream, Product& product) {
  Product start = product;
  start.a.columns = 0;
  MultiplySimply(stream, start);
  product.bias.data = nullptr;
  product.beta = 1;
}

}  // namespace

void Multiply(const Invocation& call, ProductOf product_of) {
  Product product;
  product_of(call, &product);
  if (CountOf(product) == 0) return;
  const DeviceGuard guard(call.device);
  const Stream stream = CurrentStream(call);
  if (product.a.columns == 0) return MultiplySimply(stream, product);
  product.MergeBatchIntoRows();
  MakeLongestBatchDimensionFirst(product.batch);

  // A row-major tensor, the usual kind, is a transposed column-major one. A single column is both.
  bool is_transposed = product.out.columns != 1;
  Product in_columns = is_transposed ? Transposed(product) : product;
  auto blas_product = ForBlas(in_columns);
  if (!blas_product) {
    is_transposed = !is_transposed;
    in_columns = is_transposed ? Transposed(product) : product;
    blas_product = ForBlas(in_columns);
  }
  if (!blas_product) return MultiplySimply(stream, product);

  const Blas blas(call.device, stream);
  if (product.bias.data) {
    const bool is_column = is_transposed && product.bias.column_stride == 1;
    const bool is_plain = product.batch.rank == 0 && product.beta.To<double>() == 0;
    if (is_column && is_plain && blas.MultiplyAndAdd(*blas_product, product.bias.data)) return;
    StartWithBias(stream, product);
    blas_product->beta = 1;
  }
  MultiplyBatch(blas, *blas_product, in_columns.batch);
}

void ClearProductCache() { Blas::ClearCache(); }

}  // namespace infini::ops::cuda
