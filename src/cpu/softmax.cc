#include "cpu/softmax.h"

#include <cstdint>
#include <cstring>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"

#define INFINI_OPS_KERNELS "cpu/softmax_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {

SoftmaxFunction SoftmaxOf(DataType type) {
  return WithFloatType(type, [](auto* element) -> SoftmaxFunction {
    return INFINI_OPS_KERNEL(SoftmaxRow<ElementOf<decltype(element)>>);
  });
}

void Softmax(const Tensor& input, double scale, bool is_causal, const Tensor& out) {
  const SoftmaxFunction normalize = SoftmaxOf(out.data_type());
  const auto element_size = static_cast<std::int64_t>(DataTypeSize(out.data_type()));
  const std::int64_t size = out.shape()[out.dimensions() - 1];
  const std::int64_t rows = is_causal ? out.shape()[out.dimensions() - 2] : 1;
  const auto loop = [&](std::int64_t row, const void* const* inputs, void* const* outs,
                        void* powers) {
    const std::int64_t visible = size - rows + row % rows + 1;
    normalize(inputs[0], visible, size, scale, powers, outs[0]);
    std::memset(static_cast<char*>(outs[0]) + visible * element_size, 0,
                static_cast<std::size_t>((size - visible) * element_size));
  };
  ForEachRow({&input}, {&out}, SoftmaxScratch(size), loop);
}

}  // namespace infini::ops::cpu
