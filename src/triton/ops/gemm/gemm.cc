#include "base/gemm.h"

#include "core/product.h"
#include "triton/gemm.h"
#include "triton/launch.h"
#include "triton/operands.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonGemmRequest;

// For at most two dimensions of matrices: `batches.data` contains the addresses of `out`, `a`
// and `b`.
Request MakeRequest(const Product& product, const Geometry<4>& batches) {
  const DataType type = product.type;
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = batches.data[Product::kOut];
  request.a = batches.data[Product::kA];
  request.b = batches.data[Product::kB];
  request.m = product.out.rows;
  request.n = product.out.columns;
  request.k = product.a.columns;
  request.batches = batches.count();
  request.inner_batches = triton::SizeOf(batches, 0);
  request.alpha = product.alpha.To<double>();
  request.beta = product.beta.To<double>();
  request.out_inner = triton::StrideOf(batches, Product::kOut, 0, type);
  request.out_outer = triton::StrideOf(batches, Product::kOut, 1, type);
  request.a_inner = triton::StrideOf(batches, Product::kA, 0, type);
  request.a_outer = triton::StrideOf(batches, Product::kA, 1, type);
  request.b_inner = triton::StrideOf(batches, Product::kB, 0, type);
  request.b_outer = triton::StrideOf(batches, Product::kB, 1, type);
  request.out_row = product.out.row_stride;
  request.out_column = product.out.column_stride;
  request.a_row = product.a.row_stride;
  request.a_column = product.a.column_stride;
  request.b_row = product.b.row_stride;
  request.b_column = product.b.column_stride;
  return request;
}

}  // namespace

template <>
struct Operator<Gemm, Device::Type::kNvidia, 9> {
  static constexpr Limits kLimits{kSmallFloatTypes, &triton::IsCountable, triton::kCountableLimit};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& call) {
    Product product;
    GemmOf(call, &product);
    if (call.out().element_count() == 0) return;
    product.MergeBatchIntoRows();
    // The kernels need a row-major `out`.
    if (product.out.row_stride == 1 && product.out.column_stride != 1) product.Transpose();
    ForEachPiece(product.batch, 2, [&](const Geometry<4>& part) {
      triton::Launch("gemm", &InfiniOpsTritonGemm, MakeRequest(product, part), call);
    });
  }
};

INFINI_OPS_REGISTER(Gemm, Device::Type::kNvidia, 9);

}  // namespace infini::ops
