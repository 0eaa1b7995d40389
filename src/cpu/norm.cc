#include "cpu/norm.h"

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/norm_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// A kernel of norm_kernels.h, for rows of `count` elements.
using NormRow = void (*)(const void* const* inputs, const void* weights, std::int64_t count,
                         double eps, void* const* outs, void* sums);

void Normalize(NormRow normalize, std::initializer_list<const Tensor*> inputs, const Tensor& weight,
               double eps, std::initializer_list<const Tensor*> outs) {
  const std::int64_t size = weight.shape()[0];
  std::vector<char> buffer;
  const void* const weights = Gather(weight, &buffer);
  const auto loop = [&](std::int64_t, const void* const* elements, void* const* results,
                        void* sums) { normalize(elements, weights, size, eps, results, sums); };
  const std::int64_t sums =
      inputs.size() == 1 ? 0 : size * static_cast<std::int64_t>(sizeof(float));
  // Half as many bytes take nearly as long to compute.
  const bool is_memory_bound = DataTypeSize((*outs.begin())->data_type()) > 2;
  ForEachRow(inputs, outs, sums, loop, is_memory_bound);
}

}  // namespace

void RmsNorm(const Tensor& input, const Tensor& weight, double eps, const Tensor& out) {
  const NormRow normalize = WithFloatType(out.data_type(), [&](auto* element) -> NormRow {
    using T = ElementOf<decltype(element)>;
    if constexpr (sizeof(T) == 2) {
      const bool has_wide_weight = weight.data_type() == DataType::kFloat32;
      if (has_wide_weight) return INFINI_OPS_KERNEL(RmsNormRow<T, float>);
    }
    return INFINI_OPS_KERNEL(RmsNormRow<T, T>);
  });
  Normalize(normalize, {&input}, weight, eps, {&out});
}

void AddRmsNorm(const Tensor& input, const Tensor& residual, const Tensor& weight, double eps,
                const Tensor& out, const Tensor& residual_out) {
  const NormRow normalize = WithSmallFloatType(out.data_type(), [&](auto* element) -> NormRow {
    using T = ElementOf<decltype(element)>;
    if constexpr (sizeof(T) == 2) {
      const bool has_wide_weight = weight.data_type() == DataType::kFloat32;
      if (has_wide_weight) return INFINI_OPS_KERNEL(AddRmsNormRow<T, float>);
    }
    return INFINI_OPS_KERNEL(AddRmsNormRow<T, T>);
  });
  Normalize(normalize, {&input, &residual}, weight, eps, {&out, &residual_out});
}

}  // namespace infini::ops::cpu
