#include "base/add.h"

#include <cstdint>
#include <stdexcept>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/add_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
template <>
struct Operator<Add, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& other, const Scalar& alpha,
                       const Tensor& out) {
    return IsElementwise(out, {&input, &other}) && IsRealType(out.data_type()) &&
           IsFactor(alpha, out.data_type());
  }

  static void Run(const Tensor& input, const Tensor& other, const Scalar& alpha,
                  const Tensor& out) {
    if (!Supports(input, other, alpha, out)) {
      throw std::invalid_argument(
          "add: slot 0 takes aligned strided tensors of one real type, an alpha that the type can "
          "hold, and an out of the shape that they broadcast to; out must not overlap itself, or "
          "an input unless both are the same view; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    cpu::WithRealType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      // alpha in the precision of the type itself.
      const auto factor = static_cast<Computed<T>>(static_cast<T>(alpha.To<Computed<T>>()));
      cpu::Elementwise(input, other, out, INFINI_OPS_KERNEL(AddElements<T>), &factor);
    });
  }
};

INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0);

}  // namespace infini::ops
