#include "base/rms_norm.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/rms_norm_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {

template <>
struct Operator<RmsNorm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& weight, double eps, const Tensor& out) {
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
