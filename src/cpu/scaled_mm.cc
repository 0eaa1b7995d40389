#include "base/scaled_mm.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/elements.h"
#include "cpu/kernels.h"
#include "cpu/parallel.h"
#include "cpu/product.h"
#include "cpu/product_parts.h"
#include "cpu/rows.h"
#include "infini/ops/tensor.h"

#define INFINI_OPS_KERNELS "cpu/scaled_mm_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops {
namespace {

Matrix MatrixOf(const Tensor& tensor) {
  return {tensor.data<char>(), tensor.shape()[0], tensor.shape()[1], tensor.strides()[0],
          tensor.strides()[1]};
}

// Columns of `a` and as many rows of `b`, from `begin` on.
void MultiplySteps(DataType type, Matrix a, Matrix b, std::int64_t begin, std::int64_t count,
                   const Matrix& sums) {
  a.data += begin * a.column_stride;
  b.data += begin * b.row_stride;
  a.columns = b.rows = count;
  cpu::MultiplyBytes(type, a, b, sums);
}

// Scales with the step from one to the next, which is 0 if there is only one.
struct Scales {
  explicit Scales(const Tensor& tensor) : data(tensor.data<float>()) {
    for (std::size_t i = 0; i < tensor.dimensions(); ++i) {
      if (tensor.shape()[i] != 1) step = tensor.strides()[i];
    }
  }
  float At(std::int64_t i) const { return data[i * step]; }

  const float* data;
  std::int64_t step = 0;
};

void AddIntegers(const float* sums, std::uint32_t* totals, std::int64_t count) {
  cpu::ParallelFor(count, cpu::kElementsPerThread, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      totals[i] += static_cast<std::uint32_t>(static_cast<std::int32_t>(sums[i]));
    }
  });
}

// `sums` has 32-bit integers or floats.
void Scale(const Tensor& sums, bool are_integers, const Tensor& a_scales, const Tensor& b_scales,
           const std::optional<Tensor>& bias, const Tensor& out) {
  const std::int64_t columns = out.shape()[1];
  const auto scale_row = cpu::WithSmallFloatType(out.data_type(), [](auto* element) {
    return INFINI_OPS_KERNEL(ScaleRow<ElementOf<decltype(element)>>);
  });
  const Scales of_rows(a_scales);
  const Scales of_columns(b_scales);
  std::vector<float> scales(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; i < columns; ++i) scales[i] = of_columns.At(i);
  std::vector<char> buffer;
  const void* const added = bias ? cpu::Gather(*bias, &buffer) : nullptr;
  const auto loop = [&](std::int64_t row, const void* const* inputs, void* const* outs, void*) {
    scale_row(inputs[0], are_integers, columns, of_rows.At(row), scales.data(), added, outs[0]);
  };
  cpu::ForEachRow({&sums}, {&out}, 0, loop);
}

}  // namespace

template <>
struct Operator<ScaledMm, Device::Type::kCpu, 0> {
  static void Run(const Tensor& a, const Tensor& b, const Tensor& a_scales, const Tensor& b_scales,
                  const std::optional<Tensor>& bias, const Tensor& out) {
    const std::int64_t count = out.element_count();
    const std::int64_t steps = a.shape()[1];
    const bool is_int8 = a.data_type() == DataType::kInt8;
    const bool has_totals = is_int8 && steps > cpu::kExactSteps;
    const cpu::Buffer sums(count * 4);
    const std::int64_t columns = out.shape()[1];
    const Matrix product{sums.get(), out.shape()[0], columns, columns, 1};
    std::vector<std::uint32_t> totals(has_totals ? static_cast<std::size_t>(count) : 0);
    if (has_totals) {
      for (std::int64_t begin = 0; begin < steps; begin += cpu::kExactSteps) {
        const std::int64_t part = std::min(cpu::kExactSteps, steps - begin);
        MultiplySteps(a.data_type(), MatrixOf(a), MatrixOf(b), begin, part, product);
        AddIntegers(reinterpret_cast<const float*>(sums.get()), totals.data(), count);
      }
    } else {
      cpu::MultiplyBytes(a.data_type(), MatrixOf(a), MatrixOf(b), product);
    }
    void* const results = has_totals ? static_cast<void*>(totals.data()) : sums.get();
    Scale({results, out.shape(), DataType::kFloat32}, has_totals, a_scales, b_scales, bias, out);
  }
};

INFINI_OPS_REGISTER(ScaledMm, Device::Type::kCpu, 0);

}  // namespace infini::ops
