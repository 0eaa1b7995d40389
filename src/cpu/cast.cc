#include "base/cast.h"

#include <stdexcept>

#include "core/elements.h"
#include "core/requirements.h"
#include "cpu/convert.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<Cast, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& out) {
    return IsInput(input, out) && IsStoredType(input.data_type()) &&
           IsStoredType(out.data_type()) && BroadcastsTo(input, out);
  }

  static void Run(const Tensor& input, const Tensor& out) {
    if (!Supports(input, out)) {
      throw std::invalid_argument(
          "cast: slot 0 takes aligned strided tensors of bool and real types, and an input that "
          "broadcasts to the shape of out; out must not overlap itself, or the input unless both "
          "are the same view; got " +
          Describe(input) + " and out " + Describe(out));
    }
    cpu::Convert(input, out);
  }
};

INFINI_OPS_REGISTER(Cast, Device::Type::kCpu, 0);

}  // namespace infini::ops
