#include "base/mul.h"
#include "cuda/elementwise.h"
#include "cuda/types.h"

namespace infini::ops {
namespace {

template <typename T>
struct MulFunction {
  using C = Computed<T>;

  __device__ T operator()(T input, T other) const {
    return static_cast<T>(static_cast<C>(input) * static_cast<C>(other));
  }
};

}  // namespace

template <>
struct Operator<Mul, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Tensor& out) {
    cuda::WithRealType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      cuda::RunElementwise<T, T>(invocation, MakeGeometry(out, input, other), MulFunction<T>());
    });
  }
};

INFINI_OPS_REGISTER(Mul, cuda::kDevice, 0);

}  // namespace infini::ops
