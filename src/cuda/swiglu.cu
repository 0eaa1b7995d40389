#include "base/swiglu.h"
#include "cuda/elementwise.h"
#include "cuda/gated.h"
#include "cuda/types.h"

namespace infini::ops {

template <>
struct Operator<Swiglu, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& gate,
                  const Tensor& out) {
    cuda::WithFloatType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      cuda::RunElementwise<T, T>(invocation, MakeGeometry(out, input, gate),
                                 cuda::SiluFunction<T>());
    });
  }
};

INFINI_OPS_REGISTER(Swiglu, cuda::kDevice, 0);

}  // namespace infini::ops
