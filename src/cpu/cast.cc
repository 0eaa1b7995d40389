#include "base/cast.h"

#include <stdexcept>

#include "cpu/convert.h"
#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<Cast, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& out) {
    return input.defined() && out.defined() && cpu::IsConvertible(input.data_type()) &&
           cpu::IsConvertible(out.data_type()) && cpu::BroadcastsTo(out.shape(), input) &&
           cpu::IsAligned(input) && cpu::IsAligned(out) && IsWritable(out, input);
  }

  static void Run(const Tensor& input, const Tensor& out) {
    if (!Supports(input, out)) {
      throw std::invalid_argument(
          "cast: slot 0 takes aligned strided tensors of bool and real types, the input "
          "broadcastable to the shape of out, which overlaps neither itself nor, in part, the "
          "input; got " +
          Describe(input) + " and out " + Describe(out));
    }
    cpu::Convert(input, out);
  }
};

INFINI_OPS_REGISTER(Cast, Device::Type::kCpu, 0);

}  // namespace infini::ops
