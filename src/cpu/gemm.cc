#include "base/gemm.h"

#include <stdexcept>

#include "core/requirements.h"
#include "cpu/product.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

cpu::Product ProductOf(const Tensor& a, const Tensor& b, const Scalar& alpha, const Scalar& beta,
                       bool trans_a, bool trans_b, const Tensor& out) {
  const cpu::Matrices left(a);
  const cpu::Matrices right(b);
  return {trans_a ? left.Transposed() : left,
          trans_b ? right.Transposed() : right,
          cpu::Matrices(out),
          out.data_type(),
          std::nullopt,
          alpha,
          beta};
}

}  // namespace

template <>
struct Operator<Gemm, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& a, const Tensor& b, const Scalar& alpha, const Scalar& beta,
                       bool trans_a, bool trans_b, const Tensor& out) {
    if (!IsProductInput(a, out) || !IsProductInput(b, out)) return false;
    const cpu::Product product = ProductOf(a, b, alpha, beta, trans_a, trans_b, out);
    return product.HasFittingShapes() && product.HasFittingScalars();
  }

  static void Run(const Tensor& a, const Tensor& b, const Scalar& alpha, const Scalar& beta,
                  bool trans_a, bool trans_b, const Tensor& out) {
    if (!Supports(a, b, alpha, beta, trans_a, trans_b, out)) {
      throw std::invalid_argument(
          "gemm: slot 0 takes aligned strided tensors of one real type, an alpha and a beta that "
          "the type can hold, matrices whose shapes match after `trans_a` and `trans_b`, and an "
          "out of the product's shape; out must not overlap itself or an input; got " +
          Describe(a) + (trans_a ? " transposed, " : ", ") + Describe(b) +
          (trans_b ? " transposed and out " : " and out ") + Describe(out));
    }
    ProductOf(a, b, alpha, beta, trans_a, trans_b, out).Run();
  }
};

INFINI_OPS_REGISTER(Gemm, Device::Type::kCpu, 0);

}  // namespace infini::ops
