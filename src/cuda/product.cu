#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "core/requirements.h"
#include "cuda/blas.h"
#include "cuda/product.h"
#include "cuda/types.h"

namespace infini::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxSize = std::numeric_limits<std::int32_t>::max();  // of BLAS and grids

// The step of the tensor along a dimension of `out`; nothing if it does not broadcast to `out`.
std::optional<std::int64_t> StepOf(const Tensor& tensor, const Tensor& out, std::size_t dimension) {
  const std::size_t missing = out.dimensions() - tensor.dimensions();
  if (dimension < missing) return 0;
  const std::int64_t size = tensor.shape()[dimension - missing];
  if (size == 1) return 0;
  if (size != out.shape()[dimension]) return std::nullopt;
  return tensor.strides()[dimension - missing];
}

// Adds an outermost dimension, or merges it with the current outermost one. Returns false if there
// are too many dimensions.
bool AddBatchDimension(Product& product, std::int64_t size, const std::int64_t (&steps)[3]) {
  if (size == 1) return true;
  std::int64_t* const strides[] = {product.a.batch_strides, product.b.batch_strides,
                                   product.out.batch_strides};
  const int outermost = product.batch_dimensions - 1;
  bool continues = outermost >= 0;
  for (int i = 0; continues && i < 3; ++i) {
    continues = steps[i] == strides[i][outermost] * product.batch_sizes[outermost];
  }
  if (continues) {
    product.batch_sizes[outermost] *= size;
    return true;
  }
  if (product.batch_dimensions == Matrix::kMaxBatchDimensions) return false;
  const int added = product.batch_dimensions++;
  product.batch_sizes[added] = size;
  for (int i = 0; i < 3; ++i) strides[i][added] = steps[i];
  return true;
}

bool AddBatch(Product& product, const Tensor& a, const Tensor& b, const Tensor& out) {
  for (std::size_t i = out.dimensions() - 2; i-- > 0;) {
    const auto a_step = StepOf(a, out, i), b_step = StepOf(b, out, i);
    if (!a_step || !b_step) return false;
    const std::int64_t steps[] = {*a_step, *b_step, out.strides()[i]};
    if (!AddBatchDimension(product, out.shape()[i], steps)) return false;
  }
  return true;
}

Matrix MatrixOf(const Tensor& tensor) {
  const std::size_t rank = tensor.dimensions();
  return {tensor.data(), tensor.strides()[rank - 2], tensor.strides()[rank - 1], {}};
}

std::int64_t CountOf(const Product& product) {
  std::int64_t count = product.m * product.n;
  for (int i = 0; i < product.batch_dimensions; ++i) count *= product.batch_sizes[i];
  return count;
}

void RemoveBatchDimension(Product& product, int index) {
  const int last = --product.batch_dimensions;
  product.batch_sizes[index] = product.batch_sizes[last];
  for (Matrix* matrix : {&product.a, &product.b, &product.out}) {
    matrix->batch_strides[index] = matrix->batch_strides[last];
  }
}

// If one `b` multiplies the whole batch, the batch is one matrix with more rows.
void MergeBatchIntoRows(Product& product) {
  int i = 0;
  while (i < product.batch_dimensions) {
    const std::int64_t a_step = product.a.batch_strides[i];
    const std::int64_t out_step = product.out.batch_strides[i];
    const bool is_continued = a_step == product.m * product.a.row_stride &&
                              out_step == product.m * product.out.row_stride;
    if (product.b.batch_strides[i] != 0 || (product.m != 1 && !is_continued)) {
      ++i;
      continue;
    }
    if (product.m == 1) {
      product.a.row_stride = a_step;
      product.out.row_stride = out_step;
    }
    product.m *= product.batch_sizes[i];
    RemoveBatchDimension(product, i);
    i = 0;  // dimensions that did not continue the rows before may do so now
  }
}

// out^T = b^T @ a^T.
Product Transposed(Product product) {
  std::swap(product.a, product.b);
  std::swap(product.m, product.n);
  for (Matrix* matrix : {&product.a, &product.b, &product.out}) {
    std::swap(matrix->row_stride, matrix->column_stride);
  }
  return product;
}

// The matrix as column-major, as BLAS needs it; nothing if its columns are not contiguous. A
// dimension of one element can have any stride.
std::optional<BlasMatrix> InColumns(const Matrix& matrix, std::int64_t rows, std::int64_t columns) {
  const std::int64_t leading = columns == 1 ? rows : matrix.column_stride;
  const bool is_contiguous = rows == 1 || matrix.row_stride == 1;
  if (!is_contiguous || leading < rows || leading > kMaxSize) return std::nullopt;
  return BlasMatrix{matrix.data, leading, matrix.batch_strides[0], false};
}

// A single row is treated as one transposed column, because many columns would count as badly
// aligned.
std::optional<BlasMatrix> InColumnsOrRows(const Matrix& matrix, std::int64_t rows,
                                          std::int64_t columns) {
  const bool is_row = rows == 1 && matrix.column_stride == 1;
  const auto in_columns = is_row ? std::nullopt : InColumns(matrix, rows, columns);
  if (in_columns) return in_columns;
  Matrix transposed = matrix;
  std::swap(transposed.row_stride, transposed.column_stride);
  auto in_rows = InColumns(transposed, columns, rows);
  if (in_rows) in_rows->transposed = true;
  return in_rows;
}

// Handles only the first dimension of the batch.
std::optional<BlasProduct> ForBlas(const Product& product) {
  const std::int64_t batch_size = product.batch_dimensions > 0 ? product.batch_sizes[0] : 1;
  if (std::max({product.m, product.n, product.k, batch_size}) > kMaxSize) return std::nullopt;
  const auto out = InColumns(product.out, product.m, product.n);
  const auto a = InColumnsOrRows(product.a, product.m, product.k);
  const auto b = InColumnsOrRows(product.b, product.k, product.n);
  if (!out || !a || !b) return std::nullopt;
  return BlasProduct{product.data_type, product.m,   product.n, product.k, batch_size, *a, *b, *out,
                     product.alpha,     product.beta};
}

void MakeLongestBatchDimensionFirst(Product& product) {
  const auto* longest =
      std::max_element(product.batch_sizes, product.batch_sizes + product.batch_dimensions);
  const auto index = longest - product.batch_sizes;
  std::swap(product.batch_sizes[0], product.batch_sizes[index]);
  for (Matrix* matrix : {&product.a, &product.b, &product.out}) {
    std::swap(matrix->batch_strides[0], matrix->batch_strides[index]);
  }
}

void Advance(BlasMatrix& matrix, std::int64_t elements, DataType type) {
  const auto bytes = elements * static_cast<std::int64_t>(DataTypeSize(type));
  matrix.data = static_cast<char*>(matrix.data) + bytes;
}

// One call for each index of the other dimensions of the batch.
void MultiplyBatch(const Blas& blas, const BlasProduct& first, const Product& product) {
  std::int64_t calls = 1;
  for (int d = 1; d < product.batch_dimensions; ++d) calls *= product.batch_sizes[d];
  for (std::int64_t call = 0; call < calls; ++call) {
    BlasProduct at = first;
    std::int64_t rest = call;
    for (int d = 1; d < product.batch_dimensions; ++d) {
      const std::int64_t index = rest % product.batch_sizes[d];
      Advance(at.a, index * product.a.batch_strides[d], product.data_type);
      Advance(at.b, index * product.b.batch_strides[d], product.data_type);
      Advance(at.out, index * product.out.batch_strides[d], product.data_type);
      rest /= product.batch_sizes[d];
    }
    blas.Multiply(at);
  }
}

// One thread per element of `out`.
template <typename T>
__global__ void MultiplySimply(Product product, std::int64_t count) {
  using A = Computed<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (std::int64_t i = first; i < count; i += step) {
    const std::int64_t column = i % product.n;
    const std::int64_t row = i / product.n % product.m;
    std::int64_t batch = i / product.n / product.m;
    const T* a = static_cast<const T*>(product.a.data) + row * product.a.row_stride;
    const T* b = static_cast<const T*>(product.b.data) + column * product.b.column_stride;
    T* out = static_cast<T*>(product.out.data) + row * product.out.row_stride +
             column * product.out.column_stride;
    for (int d = 0; d < product.batch_dimensions; ++d) {
      const std::int64_t index = batch % product.batch_sizes[d];
      a += index * product.a.batch_strides[d];
      b += index * product.b.batch_strides[d];
      out += index * product.out.batch_strides[d];
      batch /= product.batch_sizes[d];
    }
    A sum = 0;
    for (std::int64_t j = 0; j < product.k; ++j) {
      sum += static_cast<A>(a[j * product.a.column_stride]) *
             static_cast<A>(b[j * product.b.row_stride]);
    }
    sum *= static_cast<A>(product.alpha);
    if (product.beta != 0) sum += static_cast<A>(product.beta) * static_cast<A>(*out);
    if (product.bias) {
      sum += static_cast<A>(static_cast<const T*>(product.bias)[column * product.bias_stride]);
    }
    *out = static_cast<T>(sum);
  }
}

void MultiplySimply(Stream stream, const Product& product) {
  const std::int64_t count = CountOf(product);
  const auto blocks = static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMaxSize));
  WithFloatType(product.data_type, [&](auto* element) {
    using T = ElementOf<decltype(element)>;
    Launch(MultiplySimply<T>, dim3(blocks), dim3(kThreads), 0, stream, product, count);
  });
}

// Computes out = beta * out + bias, so that only the product remains to be added.
void StartWithBias(Stream stream, Product& product) {
  Product start = product;
  start.k = 0;
  MultiplySimply(stream, start);
  product.bias = nullptr;
  product.beta = 1;
}

}  // namespace

std::optional<Product> ProductOf(const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::size_t rank = out.dimensions();
  if (std::min(a.dimensions(), b.dimensions()) < 2) return std::nullopt;
  if (std::max(a.dimensions(), b.dimensions()) > rank) return std::nullopt;
  const DataType type = out.data_type();
  if (!IsFloatType(type) || !IsProductInput(a, out) || !IsProductInput(b, out)) {
    return std::nullopt;
  }
  const auto size = [](const Tensor& tensor, std::size_t from_end) {
    return tensor.shape()[tensor.dimensions() - from_end];
  };
  Product product;
  product.data_type = type;
  product.m = size(out, 2);
  product.n = size(out, 1);
  product.k = size(a, 1);
  if (size(a, 2) != product.m || size(b, 2) != product.k || size(b, 1) != product.n) {
    return std::nullopt;
  }
  product.a = MatrixOf(a);
  product.b = MatrixOf(b);
  product.out = MatrixOf(out);
  if (!AddBatch(product, a, b, out)) return std::nullopt;
  return product;
}

void Multiply(const Invocation& invocation, const Product& given) {
  if (CountOf(given) == 0) return;
  const DeviceGuard guard(invocation.device);
  const Stream stream = CurrentStream(invocation);
  if (given.k == 0) return MultiplySimply(stream, given);
  Product product = given;
  MergeBatchIntoRows(product);
  MakeLongestBatchDimensionFirst(product);

  // A row-major tensor, the usual kind, is a transposed column-major one. A single column is both.
  bool is_transposed = product.n != 1;
  Product in_columns = is_transposed ? Transposed(product) : product;
  auto blas_product = ForBlas(in_columns);
  if (!blas_product) {
    is_transposed = !is_transposed;
    in_columns = is_transposed ? Transposed(product) : product;
    blas_product = ForBlas(in_columns);
  }
  if (!blas_product) return MultiplySimply(stream, product);

  const Blas blas(invocation.device, stream);
  if (product.bias) {
    const bool is_column = is_transposed && product.bias_stride == 1;
    const bool is_plain = product.batch_dimensions == 0 && product.beta == 0;
    if (is_column && is_plain && blas.MultiplyAndAdd(*blas_product, product.bias)) return;
    StartWithBias(stream, product);
    blas_product->beta = 1;
  }
  MultiplyBatch(blas, *blas_product, in_columns);
}

void ClearProductCache() { Blas::ClearCache(); }

Tensor Unsqueezed(const Tensor& tensor, std::size_t index) {
  std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  std::vector<std::int64_t> strides(tensor.strides().begin(), tensor.strides().end());
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(index), 1);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(index), 0);
  return {tensor.data(), shape, strides, tensor.data_type(), tensor.device()};
}

Tensor Transposed(const Tensor& tensor) {
  std::vector<std::int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  std::vector<std::int64_t> strides(tensor.strides().begin(), tensor.strides().end());
  const std::size_t last = tensor.dimensions() - 1;
  std::swap(shape[last], shape[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return {tensor.data(), shape, strides, tensor.data_type(), tensor.device()};
}

}  // namespace infini::ops::cuda
