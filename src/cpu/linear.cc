#include "base/linear.h"

#include <stdexcept>

#include "core/requirements.h"
#include "cpu/product.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

// Adds the dimensions that vectors lack, in `out` too.
cpu::Product ProductOf(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                       const Tensor& out) {
  const bool has_rows = input.dimensions() != 1;
  const bool has_columns = weight.dimensions() != 1;
  cpu::Product product{cpu::Matrices(input, has_rows),
                       cpu::Matrices(weight, has_columns).Transposed(),
                       cpu::Matrices(out, has_rows, has_columns), out.data_type()};
  if (bias) product.bias = cpu::Matrices(*bias, false, has_columns);
  return product;
}

}  // namespace

template <>
struct Operator<Linear, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                       const Tensor& out) {
    if (!IsProductInput(input, out) || !IsProductInput(weight, out)) return false;
    if (weight.dimensions() > 2 || (bias && !IsBias(*bias, weight, out))) return false;
    const cpu::Product product = ProductOf(input, weight, bias, out);
    return product.HasFittingShapes() && product.HasFittingScalars();
  }

  static void Run(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                  const Tensor& out) {
    if (!Supports(input, weight, bias, out)) {
      throw std::invalid_argument(
          "linear: slot 0 takes aligned strided tensors of one real type, a weight [out, in] and a "
          "bias [out], or a weight [in] and a bias [], and an out of the product's shape; out must "
          "not overlap itself or an input; got " +
          Describe(input) + ", weight " + Describe(weight) + ", bias " +
          (bias ? Describe(*bias) : "none") + " and out " + Describe(out));
    }
    ProductOf(input, weight, bias, out).Run();
  }
};

INFINI_OPS_REGISTER(Linear, Device::Type::kCpu, 0);

}  // namespace infini::ops
