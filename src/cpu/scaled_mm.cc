#include "base/scaled_mm.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cpu/copy.h"
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

const std::int8_t* BytesAt(const Matrix& matrix, std::int64_t i, std::int64_t j) {
  return reinterpret_cast<const std::int8_t*>(matrix.data) + i * matrix.row_stride +
         j * matrix.column_stride;
}

// Steps along k for which four widened rows of `a` stay in the first-level cache.
constexpr std::int64_t kSteps = 2048;

// Rows and columns that one thread multiplies at a time. The columns stay in the second-level
// cache.
constexpr std::int64_t kBlock = 64;

// `b`, or a copy if its columns are not contiguous. Columns of the copy are not a power of two
// apart, so that they do not share a few lines of the cache.
Matrix WithContiguousColumns(const Matrix& b, cpu::Buffer* memory) {
  if (b.row_stride == 1) return b;
  const std::int64_t stride = cpu::CeilDiv(b.rows, 128) * 128 + 64;
  *memory = cpu::Buffer(b.columns * stride);
  const cpu::Copy copy = cpu::CopyOf(1);
  const auto copy_columns = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; j += kBlock) {
      const std::int64_t count = std::min(kBlock, end - j);
      for (std::int64_t i = 0; i < b.rows; ++i) {
        copy(b.data + i * b.row_stride + j * b.column_stride, b.column_stride,
             memory->get() + j * stride + i, stride, count);
      }
    }
  };
  cpu::ParallelFor(b.columns, cpu::kElementsPerThread / stride, copy_columns);
  return {memory->get(), b.rows, b.columns, 1, stride};
}

// The rows of `a` as the kernels take them, `row_size` apart.
cpu::Buffer WidenRows(const Matrix& a, std::int64_t row_size) {
  cpu::Buffer wide(cpu::FilledUp(a.rows) * row_size *
                   static_cast<std::int64_t>(sizeof(std::int16_t)));
  const auto widen = INFINI_OPS_KERNEL(WidenRow);
  const auto widen_rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      widen(BytesAt(a, i, 0), a.column_stride, a.columns,
            reinterpret_cast<std::int16_t*>(wide.get()) + i * row_size);
    }
  };
  cpu::ParallelFor(a.rows, cpu::kElementsPerThread / (row_size + 1), widen_rows);
  return wide;
}

// a @ b of int8, modulo 2^32. `sums` has the rows of the product one after the other.
void MultiplyIntegers(const Matrix& a, const Matrix& factors, std::uint32_t* sums) {
  const std::int64_t m = a.rows, n = factors.columns, k = a.columns;
  cpu::Buffer memory(0);
  const Matrix b = WithContiguousColumns(factors, &memory);
  const std::int64_t row_size = cpu::CeilDiv(k, 64) * 64;
  const cpu::Buffer buffer = WidenRows(a, row_size);
  const auto* const rows = reinterpret_cast<const std::int16_t*>(buffer.get());
  const auto multiply = INFINI_OPS_KERNEL(MultiplyBytes);
  const std::int64_t down = cpu::CeilDiv(m, kBlock);
  const auto multiply_blocks = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t i = block % down * kBlock;
      const std::int64_t j = block / down * kBlock;
      std::int64_t step = 0;
      do {
        multiply(std::min(kBlock, m - i), std::min(kBlock, n - j), std::min(kSteps, k - step),
                 rows + i * row_size + step, row_size, BytesAt(b, step, j), b.column_stride,
                 sums + i * n + j, n, step > 0);
        step += kSteps;
      } while (step < k);
    }
  };
  const std::int64_t of_block = kBlock * std::min(m, kBlock) * (k + 1);
  cpu::ParallelFor(down * cpu::CeilDiv(n, kBlock), cpu::kMultiplicationsPerThread / of_block,
                   multiply_blocks);
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
    if (out.element_count() == 0) return;
    const bool are_integers = a.data_type() == DataType::kInt8;
    const std::int64_t columns = out.shape()[1];
    const cpu::Buffer sums(out.element_count() * 4);
    if (are_integers) {
      MultiplyIntegers(MatrixOf(a), MatrixOf(b), reinterpret_cast<std::uint32_t*>(sums.get()));
    } else {
      cpu::MultiplyFloat8(MatrixOf(a), MatrixOf(b),
                          {sums.get(), out.shape()[0], columns, columns, 1});
    }
    Scale({sums.get(), out.shape(), DataType::kFloat32}, are_integers, a_scales, b_scales, bias,
          out);
  }
};

INFINI_OPS_REGISTER(ScaledMm, Device::Type::kCpu, 0);

}  // namespace infini::ops
