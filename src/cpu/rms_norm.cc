#include "base/rms_norm.h"

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/rms_norm_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace {

template <typename T, typename W>
void Normalize(const Tensor& input, const Tensor& weight, double eps, const Tensor& out) {
  const cpu::Rows from(input);
  const cpu::Rows to(out);
  if (out.element_count() == 0) return;
  const auto normalize = INFINI_OPS_KERNEL(RmsNormRow<T, W>);
  std::vector<W> weight_buffer;
  const W* const weights =
      cpu::Gather<W>(weight.data<W>(), to.size, weight.strides()[0], &weight_buffer);
  const std::int64_t grain = cpu::kElementsPerThread / to.size;
  cpu::ParallelFor(to.count, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> input_buffer;
    std::vector<T> out_buffer;
    for (std::int64_t i = begin; i < end; ++i) {
      const T* const row =
          cpu::Gather<T>(input.data<T>() + from.Offset(i), from.size, from.stride, &input_buffer);
      cpu::Scatter<T>(out.data<T>() + to.Offset(i), to.size, to.stride, &out_buffer,
                      [&](T* place) { normalize(row, weights, to.size, eps, place); });
    }
  });
}

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
    cpu::WithFloatType(out.data_type(), [&](auto* element) {
      using T = ElementOf<decltype(element)>;
      if constexpr (sizeof(T) == 2) {
        if (weight.data_type() == DataType::kFloat32) Normalize<T, float>(input, weight, eps, out);
      }
      if (weight.data_type() == out.data_type()) Normalize<T, T>(input, weight, eps, out);
    });
  }
};

INFINI_OPS_REGISTER(RmsNorm, Device::Type::kCpu, 0);

}  // namespace infini::ops
