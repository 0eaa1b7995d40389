#include <stdexcept>

#include "base/gemm.h"
#include "cuda/product.h"
#include "cuda/runtime.h"

namespace infini::ops {
namespace cuda {
namespace {

std::optional<Product> GemmOf(const Tensor& a, const Tensor& b, const Scalar& alpha,
                              const Scalar& beta, bool trans_a, bool trans_b, const Tensor& out) {
  if (!a.defined() || !b.defined() || !out.defined()) return std::nullopt;
  const bool is_complex =
      alpha.kind() == Scalar::Kind::kComplex || beta.kind() == Scalar::Kind::kComplex;
  if (is_complex || a.dimensions() < 2 || b.dimensions() < 2) return std::nullopt;
  auto product = ProductOf(trans_a ? Transposed(a) : a, trans_b ? Transposed(b) : b, out);
  if (product) {
    product->alpha = alpha.To<double>();
    product->beta = beta.To<double>();
  }
  return product;
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<Gemm, cuda::kDevice, 0> {
  static bool Supports(const Tensor& a, const Tensor& b, const Scalar& alpha, const Scalar& beta,
                       bool trans_a, bool trans_b, const Tensor& out) {
    return cuda::GemmOf(a, b, alpha, beta, trans_a, trans_b, out).has_value();
  }

  static void Run(const Invocation& invocation, const Tensor& a, const Tensor& b,
                  const Scalar& alpha, const Scalar& beta, bool trans_a, bool trans_b,
                  const Tensor& out) {
    const auto product = cuda::GemmOf(a, b, alpha, beta, trans_a, trans_b, out);
    if (!product) {
      throw std::invalid_argument(
          "gemm: slot 0 takes aligned tensors of one type (float16, bfloat16, float32 or float64), "
          "[..., m, k], [..., k, n] and out [..., m, n], whose leading dimensions the inputs "
          "broadcast to, and real alpha and beta; out must not share memory with an input; got " +
          Describe(a) + (trans_a ? " transposed, " : ", ") + Describe(b) +
          (trans_b ? " transposed and out " : " and out ") + Describe(out));
    }
    cuda::Multiply(invocation, *product);
  }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Gemm, cuda::kDevice, 0);

}  // namespace infini::ops
