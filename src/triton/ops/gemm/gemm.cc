#include "base/gemm.h"

#include <stdexcept>
#include <utility>
#include <vector>

#include "core/requirements.h"
#include "triton/gemm.h"
#include "triton/launch.h"
#include "triton/operands.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonGemmRequest;

// The last two dimensions of a tensor, in elements. A dimension of one element has stride 0, so
// that it never counts as misaligned.
struct Matrix {
  explicit Matrix(const Tensor& tensor, bool is_transposed = false) {
    const std::size_t last = tensor.dimensions() - 1;
    rows = tensor.shape()[last - 1];
    columns = tensor.shape()[last];
    row_stride = rows == 1 ? 0 : tensor.strides()[last - 1];
    column_stride = columns == 1 ? 0 : tensor.strides()[last];
    if (is_transposed) Transpose();
  }

  void Transpose() {
    std::swap(rows, columns);
    std::swap(row_stride, column_stride);
  }

  std::int64_t rows, columns, row_stride, column_stride;
};

struct Product {
  Matrix a, b, out;
  double alpha, beta;
};

// For at most two dimensions of matrices: `batches.data` contains the addresses in `out`, `a` and
// `b`.
Request MakeRequest(const Product& product, const Geometry<3>& batches, DataType type) {
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = batches.data[0];
  request.a = batches.data[1];
  request.b = batches.data[2];
  request.m = product.out.rows;
  request.n = product.out.columns;
  request.k = product.a.columns;
  request.batches = batches.count();
  request.inner_batches = triton::SizeOf(batches, 0);
  request.alpha = product.alpha;
  request.beta = product.beta;
  request.out_inner = triton::StrideOf(batches, 0, 0, type);
  request.out_outer = triton::StrideOf(batches, 0, 1, type);
  request.a_inner = triton::StrideOf(batches, 1, 0, type);
  request.a_outer = triton::StrideOf(batches, 1, 1, type);
  request.b_inner = triton::StrideOf(batches, 2, 0, type);
  request.b_outer = triton::StrideOf(batches, 2, 1, type);
  request.out_row = product.out.row_stride;
  request.out_column = product.out.column_stride;
  request.a_row = product.a.row_stride;
  request.a_column = product.a.column_stride;
  request.b_row = product.b.row_stride;
  request.b_column = product.b.column_stride;
  return request;
}

// If one `b` multiplies consecutive matrices `a`, they form one matrix with more rows.
void MergeBatchesIntoRows(Product* product, Geometry<3>* batches, DataType type) {
  const auto size = static_cast<std::int64_t>(DataTypeSize(type));
  Matrix& a = product->a;
  Matrix& out = product->out;
  while (batches->rank > 0 && batches->strides[2][0] == 0) {
    const std::int64_t out_step = batches->strides[0][0] / size;
    const std::int64_t a_step = batches->strides[1][0] / size;
    if (out.rows == 1) {
      out.row_stride = out_step;
      a.row_stride = a_step;
    } else if (out_step != out.rows * out.row_stride || a_step != a.rows * a.row_stride) {
      return;
    }
    out.rows = a.rows = out.rows * batches->sizes[0];
    batches->RemoveDimension(0);
  }
}

// out^T = b^T @ a^T, for a column-major `out`: the kernels need a row-major one.
void TransposeIfByColumns(Product* product, Geometry<3>* batches) {
  if (product->out.row_stride != 1 || product->out.column_stride == 1) return;
  for (Matrix* matrix : {&product->a, &product->b, &product->out}) matrix->Transpose();
  std::swap(product->a, product->b);
  std::swap(batches->data[1], batches->data[2]);
  std::swap(batches->strides[1], batches->strides[2]);
}

bool IsReal(const Scalar& value) { return value.kind() != Scalar::Kind::kComplex; }

}  // namespace

template <>
struct Operator<Gemm, Device::Type::kNvidia, 9> {
  static bool Supports(const Invocation& invocation, const Tensor& a, const Tensor& b,
                       const Scalar& alpha, const Scalar& beta, bool trans_a, bool trans_b,
                       const Tensor& out) {
    return TakesArguments(a, b, alpha, beta, trans_a, trans_b, out) &&
           triton::HasKernelsFor(invocation.device);
  }

  static void Run(const Invocation& invocation, const Tensor& a, const Tensor& b,
                  const Scalar& alpha, const Scalar& beta, bool trans_a, bool trans_b,
                  const Tensor& out) {
    if (!TakesArguments(a, b, alpha, beta, trans_a, trans_b, out)) {
      throw std::invalid_argument(
          "gemm: slot 9 takes aligned tensors of one type (float16, bfloat16 or float32), [..., m, "
          "k], [..., k, n] and out [..., m, n], whose leading dimensions the inputs broadcast to, "
          "and real alpha and beta; out must not share memory with an input; got " +
          Describe(a) + (trans_a ? " transposed, " : ", ") + Describe(b) +
          (trans_b ? " transposed and out " : " and out ") + Describe(out));
    }
    if (out.element_count() == 0) return;
    const DataType type = out.data_type();
    Product product{Matrix(a, trans_a), Matrix(b, trans_b), Matrix(out), alpha.To<double>(),
                    beta.To<double>()};
    auto batches =
        MakeGeometry(triton::Leading(out, 2), triton::Leading(a, 2), triton::Leading(b, 2));
    MergeBatchesIntoRows(&product, &batches, type);
    TransposeIfByColumns(&product, &batches);
    ForEachPiece(batches, 2, [&](const Geometry<3>& part) {
      triton::Launch("gemm", &InfiniOpsTritonGemm, MakeRequest(product, part, type), invocation);
    });
  }

 private:
  static bool TakesArguments(const Tensor& a, const Tensor& b, const Scalar& alpha,
                             const Scalar& beta, bool trans_a, bool trans_b, const Tensor& out) {
    if (!IsProductInput(a, out) || !IsProductInput(b, out) ||
        !triton::IsSmallFloatType(out.data_type()) || !IsReal(alpha) || !IsReal(beta))
      return false;
    if (a.dimensions() < 2 || b.dimensions() < 2 || out.dimensions() < 2) return false;
    if (!triton::IsCountable(a) || !triton::IsCountable(b)) return false;
    const Matrix left(a, trans_a), right(b, trans_b), result(out);
    return left.rows == result.rows && left.columns == right.rows &&
           right.columns == result.columns &&
           BroadcastsTo(triton::Leading(a, 2), triton::Leading(out, 2)) &&
           BroadcastsTo(triton::Leading(b, 2), triton::Leading(out, 2));
  }
};

INFINI_OPS_REGISTER(Gemm, Device::Type::kNvidia, 9);

}  // namespace infini::ops
