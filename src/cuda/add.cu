#include "base/add.h"
#include "cuda/elementwise.h"
#include "cuda/types.h"

namespace infini::ops {
namespace {

template <typename T>
struct AddFunction {
  using C = Computed<T>;

  C alpha;

  __device__ T operator()(T input, T other) const {
    return static_cast<T>(static_cast<C>(input) + alpha * static_cast<C>(other));
  }
};

}  // namespace

template <>
struct Operator<Add, cuda::kDevice, 0> {
  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Scalar& alpha, const Tensor& out) {
    cuda::WithRealType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      // Not rounded to the type, as torch does on CUDA. On the CPU, torch and cpu/add.cc round it.
      const AddFunction<T> function{alpha.To<Computed<T>>()};
      cuda::RunElementwise<T, T>(invocation, MakeGeometry(out, input, other), function);
    });
  }
};

INFINI_OPS_REGISTER(Add, cuda::kDevice, 0);

}  // namespace infini::ops
