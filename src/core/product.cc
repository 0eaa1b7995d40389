#include "core/product.h"

#include <utility>

#include "core/requirements.h"
#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

// A tensor as a stack of matrices: the last two dimensions are rows and columns. It uses the
// tensor's memory. Like a tensor, it has the shape and the strides of the leading dimensions.
class Stack {
 public:
  // Without `has_rows` each vector is a row, without `has_columns` a column: the other dimension,
  // of size 1, is not one of the tensor.
  explicit Stack(const Tensor& tensor, bool has_rows = true, bool has_columns = true)
      : type_(tensor.data_type()) {
    matrix.data = tensor.data<char>();
    std::size_t last = tensor.dimensions();
    is_valid = last >= static_cast<std::size_t>(has_rows) + static_cast<std::size_t>(has_columns);
    if (!is_valid) return;
    const auto take = [&](std::int64_t* size, std::int64_t* stride) {
      --last;
      *size = tensor.shape()[last];
      *stride = *size == 1 ? 0 : tensor.strides()[last];
    };
    if (has_columns) take(&matrix.columns, &matrix.column_stride);
    if (has_rows) take(&matrix.rows, &matrix.row_stride);
    shape_ = {tensor.shape().data(), last};
    strides_ = {tensor.strides().data(), last};
  }

  template <typename T>
  T* data() const {
    return matrix.data;
  }
  DataType data_type() const { return type_; }
  Span<std::int64_t> shape() const { return shape_; }
  Span<std::int64_t> strides() const { return strides_; }
  std::size_t dimensions() const { return shape_.size(); }
  std::int64_t element_count() const {
    std::int64_t count = 1;
    for (const std::int64_t size : shape_) count *= size;
    return count;
  }

  Matrix matrix;
  bool is_valid;  // if the tensor has enough dimensions

 private:
  DataType type_;
  Span<std::int64_t> shape_;
  Span<std::int64_t> strides_;
};

// `bias` can be null.
bool Make(Product* product, const Stack& a, const Stack& b, const Stack& out,
          const Stack* bias = nullptr) {
  if (!a.is_valid || !b.is_valid || !out.is_valid || (bias && !bias->is_valid)) return false;
  if (a.matrix.rows != out.matrix.rows || a.matrix.columns != b.matrix.rows ||
      b.matrix.columns != out.matrix.columns ||
      (bias && bias->matrix.columns != out.matrix.columns) ||
      !IsBroadcastOf(out.shape(), {a.shape(), b.shape()})) {
    return false;
  }
  if (!product) return true;
  product->type = out.data_type();
  product->a = a.matrix;
  product->b = b.matrix;
  product->out = out.matrix;
  if (bias) product->bias = bias->matrix;
  FillGeometry(product->batch, out, a, b, bias ? *bias : out);
  return true;
}

}  // namespace

void Product::MergeBatchIntoRows() {
  for (int i = 0; i < batch.rank;) {
    const bool repeats =
        Step(kB, i) == 0 && (!bias.data || (Step(kBias, i) == 0 && bias.row_stride == 0));
    const bool continues =
        Step(kA, i) == a.rows * a.row_stride && Step(kOut, i) == out.rows * out.row_stride;
    // The stride of a single row has no meaning.
    if (!repeats || (out.rows != 1 && !continues)) {
      ++i;
      continue;
    }
    if (out.rows == 1) {
      a.row_stride = Step(kA, i);
      out.row_stride = Step(kOut, i);
    }
    a.rows = out.rows = out.rows * batch.sizes[i];
    batch.RemoveDimension(i);
    i = 0;  // dimensions that did not continue the rows before may do so now
  }
}

void Product::Transpose() {
  for (Matrix* const matrix : {&a, &b, &out, &bias}) *matrix = matrix->Transposed();
  std::swap(a, b);
  std::swap(batch.data[kA], batch.data[kB]);
  std::swap(batch.strides[kA], batch.strides[kB]);
}

bool GemmOf(const Invocation& call, Product* product) {
  Stack a(call.tensor(0));
  Stack b(call.tensor(1));
  if (call.arguments[4].scalar.To<bool>()) a.matrix = a.matrix.Transposed();
  if (call.arguments[5].scalar.To<bool>()) b.matrix = b.matrix.Transposed();
  if (product) {
    product->alpha = call.arguments[2].scalar;
    product->beta = call.arguments[3].scalar;
  }
  return Make(product, a, b, Stack(call.out()));
}

bool LinearOf(const Invocation& call, Product* product) {
  const Tensor& weight = call.tensor(1);
  const bool has_rows = call.tensor(0).dimensions() != 1;
  const bool has_columns = weight.dimensions() != 1;
  const Stack a(call.tensor(0), has_rows);
  Stack b(weight, has_columns);
  b.matrix = b.matrix.Transposed();
  const Stack out(call.out(), has_rows, has_columns);
  if (weight.dimensions() > 2) return false;
  if (call.arguments[2].tag == Argument::Tag::kNone) return Make(product, a, b, out);
  const Stack bias(call.tensor(2), false, has_columns);
  return call.tensor(2).dimensions() + 1 == weight.dimensions() && Make(product, a, b, out, &bias);
}

bool MatmulOf(const Invocation& call, Product* product) {
  // Adds the dimensions that vectors lack, in `out` too.
  const bool has_rows = call.tensor(0).dimensions() != 1;
  const bool has_columns = call.tensor(1).dimensions() != 1;
  const Stack a(call.tensor(0), has_rows);
  const Stack b(call.tensor(1), true, has_columns);
  const Stack out(call.out(), has_rows, has_columns);
  return Make(product, a, b, out);
}

}  // namespace infini::ops
