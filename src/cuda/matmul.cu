#include <algorithm>
#include <stdexcept>

#include "base/matmul.h"
#include "cuda/product.h"
#include "cuda/runtime.h"

namespace infini::ops {
namespace cuda {
namespace {

// True if the batch dimensions of `out` are those of the inputs. Torch resizes any other `out`.
bool HasBatchOf(const Tensor& out, const Tensor& a, const Tensor& b) {
  const std::size_t rank = out.dimensions();
  if (rank != std::max(a.dimensions(), b.dimensions())) return false;
  const auto has = [&](const Tensor& tensor, std::size_t i) {
    const std::size_t missing = rank - tensor.dimensions();
    return i >= missing && tensor.shape()[i - missing] == out.shape()[i];
  };
  for (std::size_t i = 0; i + 2 < rank; ++i) {
    if (!has(a, i) && !has(b, i)) return false;
  }
  return true;
}

std::optional<Product> MatmulOf(const Tensor& input, const Tensor& other, const Tensor& out) {
  if (!input.defined() || !other.defined() || !out.defined()) return std::nullopt;
  if (input.dimensions() == 0 || other.dimensions() == 0) return std::nullopt;
  const bool is_row = input.dimensions() == 1, is_column = other.dimensions() == 1;
  if (out.dimensions() + is_row + is_column < 2) return std::nullopt;
  const Tensor a = is_row ? Unsqueezed(input, 0) : input;
  const Tensor b = is_column ? Unsqueezed(other, 1) : other;
  Tensor product = out;
  if (is_column) product = Unsqueezed(product, product.dimensions());
  if (is_row) product = Unsqueezed(product, product.dimensions() - 1);
  return HasBatchOf(product, a, b) ? ProductOf(a, b, product) : std::nullopt;
}

}  // namespace
}  // namespace cuda

template <>
struct Operator<Matmul, cuda::kDevice, 0> {
  static bool Supports(const Tensor& input, const Tensor& other, const Tensor& out) {
    return cuda::MatmulOf(input, other, out).has_value();
  }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Tensor& out) {
    const auto product = cuda::MatmulOf(input, other, out);
    if (!product) {
      throw std::invalid_argument(
          "matmul: slot 0 takes aligned tensors of one type (float16, bfloat16, float32 or "
          "float64) with shapes that torch.matmul takes, and an out of the product's shape; out "
          "must not share memory with an input; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    cuda::Multiply(invocation, *product);
  }

  static void ClearCache() { cuda::ClearProductCache(); }
};

INFINI_OPS_REGISTER(Matmul, cuda::kDevice, 0);

}  // namespace infini::ops
