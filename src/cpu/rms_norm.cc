#include "base/rms_norm.h"

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/rms_norm_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace {

bool HasWeightType(const Tensor& weight, const Tensor& input) {
  return weight.data_type() == input.data_type() ||
         (weight.data_type() == DataType::kFloat32 && DataTypeSize(input.data_type()) == 2);
}

}  // namespace

template <>
struct Operator<RmsNorm, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& weight, double, const Tensor& out) {
    return IsRmsNorm(input, weight, out) && IsFloatType(out.data_type()) &&
           HasWeightType(weight, input);
  }

  static void Run(const Tensor& input, const Tensor& weight, double eps, const Tensor& out) {
    if (!Supports(input, weight, eps, out)) {
      throw std::invalid_argument(
          "rms_norm: slot 0 takes aligned strided tensors of one floating-point type, or of a "
          "16-bit one with a float32 weight, a weight of the size of the last dimension, and an "
          "out of the input's shape; out must not overlap itself, or another tensor unless both "
          "are the same view; got " +
          Describe(input) + ", weight " + Describe(weight) + " and out " + Describe(out));
    }
    const auto normalize = cpu::WithFloatType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      if constexpr (sizeof(T) == 2) {
        const bool has_wide_weight = weight.data_type() == DataType::kFloat32;
        if (has_wide_weight) return INFINI_OPS_KERNEL(RmsNormRow<T, float>);
      }
      return INFINI_OPS_KERNEL(RmsNormRow<T, T>);
    });
    const std::int64_t size = weight.shape()[0];
    std::vector<char> buffer;
    const void* const weights = cpu::Gather(weight, &buffer);
    const auto loop = [&](std::int64_t, const void* elements, void* results, void*) {
      normalize(elements, weights, size, eps, results);
    };
    // Half as many bytes take nearly as long to compute.
    const bool is_memory_bound = DataTypeSize(out.data_type()) > 2;
    cpu::ForEachRow(input, out, 0, loop, is_memory_bound);
  }
};

INFINI_OPS_REGISTER(RmsNorm, Device::Type::kCpu, 0);

}  // namespace infini::ops
