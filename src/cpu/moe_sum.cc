#include "base/moe_sum.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/row_elements.h"

#define INFINI_OPS_KERNELS "cpu/moe_sum_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace {

// Columns of a token that are added at a time: one token has work for several threads.
constexpr std::int64_t kColumns = cpu::kBlock;

template <typename T>
void SumExperts(const Tensor& input, const Tensor& out) {
  const std::int64_t rows = input.shape()[1];
  const std::int64_t columns = out.shape()[1];
  const std::int64_t blocks = (columns + kColumns - 1) / kColumns;
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const auto sum = INFINI_OPS_KERNEL(SumRows<T>);
  const std::int64_t grain = cpu::kElementsPerThread / ((rows + 1) * kColumns);
  cpu::ParallelFor(out.shape()[0] * blocks, grain, [&](std::int64_t first, std::int64_t last) {
    const bool is_contiguous = input.strides()[2] == 1;
    const std::unique_ptr<T[]> gathered(is_contiguous ? nullptr : new T[rows * kColumns]);
    T results[kColumns];
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t token = i / blocks;
      const std::int64_t begin = i % blocks * kColumns;
      const std::int64_t count = std::min(kColumns, columns - begin);
      const T* from = input.data<T>() + token * input.strides()[0] + begin * input.strides()[2];
      std::int64_t step = input.strides()[1];
      if (!is_contiguous) {
        for (std::int64_t row = 0; row < rows; ++row) {
          const cpu::RowElements<T> elements(
              const_cast<char*>(reinterpret_cast<const char*>(from + row * step)),
              input.strides()[2] * size);
          elements.Read(0, count, gathered.get() + row * kColumns);
        }
        from = gathered.get();
        step = kColumns;
      }
      const cpu::RowElements<T> to(
          reinterpret_cast<char*>(out.data<T>() + token * out.strides()[0]),
          out.strides()[1] * size);
      T* const room = to.Room(begin, results);
      sum(from, rows, step, count, room);
      to.Write(begin, count, room);
    }
  });
}

}  // namespace

template <>
struct Operator<MoeSum, Device::Type::kCpu, 0> {
  static void Run(const Tensor& input, const Tensor& out) {
    if (out.element_count() == 0) return;
    cpu::WithSmallFloatType(out.data_type(), [&](auto* element) {
      SumExperts<ElementOf<decltype(element)>>(input, out);
    });
  }
};

INFINI_OPS_REGISTER(MoeSum, Device::Type::kCpu, 0);

}  // namespace infini::ops
