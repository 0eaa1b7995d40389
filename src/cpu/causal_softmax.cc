#include "base/causal_softmax.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "core/requirements.h"
#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/causal_softmax_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace {

// Lanes of float32 in the widest vectors.
constexpr std::size_t kMostLanes = 16;

template <typename T>
void NormalizeAll(const Tensor& input, const Tensor& out) {
  using C = Computed<T>;
  const cpu::Rows from(input);
  const cpu::Rows to(out);
  if (out.element_count() == 0) return;
  const auto normalize = INFINI_OPS_KERNEL(SoftmaxRow<T>);
  const std::int64_t rows = out.shape()[out.dimensions() - 2];
  const std::int64_t grain = cpu::kElementsPerThread / to.size;
  cpu::ParallelFor(to.count, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> input_buffer;
    std::vector<T> out_buffer;
    std::vector<C> powers(static_cast<std::size_t>(to.size) + kMostLanes);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t visible = to.size - rows + i % rows + 1;
      const T* const row =
          cpu::Gather<T>(input.data<T>() + from.Offset(i), from.size, from.stride, &input_buffer);
      cpu::Scatter<T>(out.data<T>() + to.Offset(i), to.size, to.stride, &out_buffer, [&](T* place) {
        normalize(row, visible, to.size, powers.data(), place);
        std::memset(static_cast<void*>(place + visible), 0,
                    static_cast<std::size_t>(to.size - visible) * sizeof(T));
      });
    }
  });
}

}  // namespace

template <>
struct Operator<CausalSoftmax, Device::Type::kCpu, 0> {
  static bool Supports(const Tensor& input, const Tensor& out) {
    return IsCausalSoftmax(input, out) && IsFloatType(out.data_type());
  }

  static void Run(const Tensor& input, const Tensor& out) {
    if (!Supports(input, out)) {
      throw std::invalid_argument(
          "causal_softmax: slot 0 takes aligned strided tensors of one floating-point type and "
          "shape [..., m, n], m <= n; out must not overlap itself, or the input unless both are "
          "the same view; got " +
          Describe(input) + " and out " + Describe(out));
    }
    cpu::WithFloatType(out.data_type(), [&](auto* element) {
      NormalizeAll<ElementOf<decltype(element)>>(input, out);
    });
  }
};

INFINI_OPS_REGISTER(CausalSoftmax, Device::Type::kCpu, 0);

}  // namespace infini::ops
