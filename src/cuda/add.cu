#include <stdexcept>

#include "base/add.h"
#include "core/requirements.h"
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
  static bool Supports(const Tensor& input, const Tensor& other, const Scalar& alpha,
                       const Tensor& out) {
    return IsElementwise(out, {&input, &other}) && IsRealType(out.data_type()) &&
           IsFactor(alpha, out.data_type());
  }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Scalar& alpha, const Tensor& out) {
    if (!Supports(input, other, alpha, out)) {
      throw std::invalid_argument(
          "add: slot 0 takes aligned strided tensors of one real type, an alpha that the type can "
          "hold, and an out of the shape that they broadcast to; out must not overlap itself, or "
          "an input unless both are the same view; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    cuda::WithRealType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      const AddFunction<T> function{alpha.To<Computed<T>>()};
      cuda::RunElementwise<T, T>(invocation, MakeGeometry(out, input, other), function);
    });
  }
};

INFINI_OPS_REGISTER(Add, cuda::kDevice, 0);

}  // namespace infini::ops
