#include "base/causal_softmax.h"

#include <cstdint>
#include <cstring>

#include "cpu/rows.h"
#include "cpu/softmax.h"
#include "infini/ops/tensor.h"

namespace infini::ops {

template <>
struct Operator<CausalSoftmax, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) {
    const cpu::SoftmaxFunction normalize = cpu::SoftmaxOf(out.data_type());
    const auto element_size = static_cast<std::int64_t>(DataTypeSize(out.data_type()));
    const std::int64_t size = out.shape()[out.dimensions() - 1];
    const std::int64_t rows = out.shape()[out.dimensions() - 2];
    const auto loop = [&](std::int64_t row, const void* const* inputs, void* const* outs,
                          void* powers) {
      const std::int64_t visible = size - rows + row % rows + 1;
      normalize(inputs[0], visible, size, powers, outs[0]);
      std::memset(static_cast<char*>(outs[0]) + visible * element_size, 0,
                  static_cast<std::size_t>((size - visible) * element_size));
    };
    cpu::ForEachRow({&input}, {&out}, cpu::SoftmaxScratch(size), loop);
  }
};

INFINI_OPS_REGISTER(CausalSoftmax, Device::Type::kCpu, 0);

}  // namespace infini::ops
