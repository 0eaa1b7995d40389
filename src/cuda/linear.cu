#include <algorithm>
#include <stdexcept>

#include "base/linear.h"
#include "core/requirements.h"
#include "cuda/product.h"
#include "cuda/runtime.h"

namespace infini::ops {
namespace cuda {
namespace {

std::optional<Product> LinearOf(const Tensor& input, const Tensor& weight,
                                const std::optional<Tensor>& bias, const Tensor& out) {
  if (!input.defined() || !weight.defined() || !out.defined()) return std::nullopt;
  const std::size_t rank = input.dimensions();
  const bool is_matrix = weight.dimensions() == 2;
  if (rank == 0 || (!is_matrix && weight.dimensions() != 1)) return std::nullopt;
  if (out.dimensions() + !is_matrix != rank) return std::nullopt;
  if (!std::equal(input.shape().begin(), input.shape().end() - 1, out.shape().begin())) {
    return std::nullopt;
  }
  if (bias && !IsBias(*bias, weight, out)) return std::nullopt;

  const Tensor b = is_matrix ? Transposed(weight) : Unsqueezed(weight, 1);
  const Tensor columns = is_matrix ? out : Unsqueezed(out, rank - 1);
  auto product = rank == 1 ? ProductOf(Unsqueezed(input, 0), b, Unsqueezed(columns, 0))
                           : ProductOf(input, b, columns);
  if (product && bias) {
    product->bias = bias->data();
    product->bias_stride = bias->dimensions() == 0 ? 1 : bias->strides()[0];
  }
  return product;
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<Linear, cuda::kDevice, 0> {
  static bool Supports(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                       const Tensor& out) {
    return cuda::LinearOf(input, weight, bias, out).has_value();
  }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& weight,
                  const std::optional<Tensor>& bias, const Tensor& out) {
    const auto product = cuda::LinearOf(input, weight, bias, out);
    if (!product) {
      throw std::invalid_argument(
          "linear: slot 0 takes aligned tensors of one type (float16, bfloat16, float32 or "
          "float64), an input [..., in], a weight [out, in] and a bias [out], or a weight [in] and "
          "a bias [], and an out of the product's shape; out must not share memory with an input; "
          "got " +
          Describe(input) + ", weight " + Describe(weight) +
          (bias ? ", bias " + Describe(*bias) : "") + " and out " + Describe(out));
    }
    cuda::Multiply(invocation, *product);
  }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Linear, cuda::kDevice, 0);

}  // namespace infini::ops
