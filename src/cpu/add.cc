#include "base/add.h"

#include <cstdint>

#include "cpu/elements.h"
#include "cpu/elementwise.h"
#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "cpu/add_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<Add, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& other, const Scalar& alpha,
                  const Tensor& out) {
    cpu::WithRealType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      // Rounded to the type, as torch does on the CPU. On CUDA, torch and cuda/add.cu do not round
      // it.
      const auto factor = static_cast<Computed<T>>(static_cast<T>(alpha.To<Computed<T>>()));
      cpu::Elementwise(input, other, out, INFINI_OPS_KERNEL(AddElements<T>), &factor);
    });
  }
};

INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0);

}  // namespace infini::ops
