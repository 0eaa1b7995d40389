#include "base/matmul.h"

#include <stdexcept>

#include "core/requirements.h"
#include "cpu/product.h"
#include "infini/ops/tensor.h"

namespace infini::ops {
namespace {

// Adds the dimensions that vectors lack, in `out` too.
cpu::Product ProductOf(const Tensor& input, const Tensor& other, const Tensor& out) {
  const bool has_rows = input.dimensions() != 1;
  const bool has_columns = other.dimensions() != 1;
  return {cpu::Matrices(input, has_rows), cpu::Matrices(other, true, has_columns),
          cpu::Matrices(out, has_rows, has_columns), out.data_type()};
}

}  // namespace

template <>
struct Operator<Matmul, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& other, const Tensor& out) {
    if (!IsProductInput(input, out) || !IsProductInput(other, out)) return false;
    const cpu::Product product = ProductOf(input, other, out);
    return product.HasFittingShapes() && product.HasFittingScalars();
  }

  static void Run(const Tensor& input, const Tensor& other, const Tensor& out) {
    if (!Supports(input, other, out)) {
      throw std::invalid_argument(
          "matmul: slot 0 takes aligned strided vectors and matrices of one real type with "
          "matching shapes, and an out of the product's shape; out must not overlap itself or an "
          "input; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    ProductOf(input, other, out).Run();
  }
};

INFINI_OPS_REGISTER(Matmul, Device::Type::kCpu, 0);

}  // namespace infini::ops
