#include "cpu/quantize.h"

#include <cstddef>
#include <mutex>

#include "core/geometry.h"
#include "cpu/copy.h"
#include "cpu/elements.h"
#include "cpu/iteration.h"
#include "cpu/kernels.h"
#include "cpu/rows.h"

#define INFINI_OPS_KERNELS "cpu/quantize_kernels.h"
#include "cpu/for_each_isa.h"

namespace infini::ops::cpu {
namespace {

// The kernels of quantize_kernels.h for an input type, and a quantized type.
struct QuantizeKernels {
  void (*extend)(const void* input, std::int64_t count, Extremes* range);
  void (*quantize)(const void* input, void* result, std::int64_t count, const Scaling& scaling);
};

QuantizeKernels KernelsOf(DataType input, DataType result) {
  return WithSmallFloatType(input, [&](auto* element) -> QuantizeKernels {
    using T = ElementOf<decltype(element)>;
    const auto extend = INFINI_OPS_KERNEL(ExtendExtremes<T>);
    if (result == DataType::kInt8) return {extend, INFINI_OPS_KERNEL(Quantize<T, std::int8_t>)};
    return {extend, INFINI_OPS_KERNEL(Quantize<T, Float8>)};
  });
}

// Elements that are gathered at a time if they are not contiguous. They stay in the first-level
// cache.
constexpr std::int64_t kGathered = 512;

// Calls `function` with contiguous elements of one operand of a tile, and the place of those of the
// first one: with rows, or with shorter parts if an operand is not contiguous.
template <typename Function>
void ForEachRun(const Tile& tile, std::size_t operand, std::int64_t size,
                const Function& function) {
  const bool is_contiguous = tile.strides[operand] == size;
  const bool is_row = is_contiguous && (operand == 0 || tile.strides[0] == 1);
  const std::int64_t most = is_row ? tile.count : kGathered;
  char gathered[kGathered * sizeof(float)];
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const char* source = tile.data[operand] + row * tile.row_strides[operand];
    char* target = tile.data[0] + row * tile.row_strides[0];
    for (std::int64_t begin = 0; begin < tile.count; begin += most) {
      const std::int64_t count = std::min(most, tile.count - begin);
      if (!is_contiguous) CopyOf(size)(source, tile.strides[operand], gathered, size, count);
      function(is_contiguous ? source : gathered, count, target);
      source += count * tile.strides[operand];
      target += count * tile.strides[0];
    }
  }
}

std::int64_t SizeOf(const Tensor& tensor) {
  return static_cast<std::int64_t>(DataTypeSize(tensor.data_type()));
}

}  // namespace

void QuantizeTensor(const Tensor& input, const Scaling& scaling, const Tensor& result) {
  const QuantizeKernels kernels = KernelsOf(input.data_type(), result.data_type());
  ForEachTile(MakeGeometry(result, input), [&](const Tile& tile) {
    const std::int64_t step = tile.strides[0];
    ForEachRun(tile, 1, SizeOf(input), [&](const char* from, std::int64_t count, char* to) {
      if (step == 1) return kernels.quantize(from, to, count, scaling);
      char quantized[kGathered];
      kernels.quantize(from, quantized, count, scaling);
      CopyOf(1)(quantized, 1, to, step, count);
    });
  });
}

Extremes ExtremesOf(const Tensor& input) {
  const QuantizeKernels kernels = KernelsOf(input.data_type(), DataType::kInt8);
  Extremes range;
  std::mutex mutex;
  ForEachTile(MakeGeometry(input, input), [&](const Tile& tile) {
    Extremes own;
    ForEachRun(tile, 0, SizeOf(input), [&](const char* from, std::int64_t count, char*) {
      kernels.extend(from, count, &own);
    });
    const std::lock_guard lock(mutex);
    range.least = std::min(range.least, own.least);
    range.most = std::max(range.most, own.most);
  });
  return range;
}

void QuantizeGroups(const Tensor& input, std::int64_t size,
                    FunctionRef<Scaling(const Extremes& range)> rule, const Tensor& result,
                    const Tensor& scales, const Tensor* zero_points) {
  const QuantizeKernels kernels = KernelsOf(input.data_type(), result.data_type());
  const std::int64_t step = size * SizeOf(input);
  const std::int64_t groups = input.shape()[input.dimensions() - 1] / size;
  const auto loop = [&](std::int64_t, const void* const* inputs, void* const* outs, void*) {
    const char* from = static_cast<const char*>(inputs[0]);
    char* to = static_cast<char*>(outs[0]);
    for (std::int64_t i = 0; i < groups; ++i, from += step, to += size) {
      Extremes range;
      kernels.extend(from, size, &range);
      const Scaling scaling = rule(range);
      kernels.quantize(from, to, size, scaling);
      static_cast<float*>(outs[1])[i] = scaling.scale;
      if (zero_points) {
        static_cast<std::int32_t*>(outs[2])[i] = scaling.zero_point;
      }
    }
  };
  if (zero_points) {
    ForEachRow({&input}, {&result, &scales, zero_points}, 0, loop);
  } else {
    ForEachRow({&input}, {&result, &scales}, 0, loop);
  }
}

}  // namespace infini::ops::cpu
