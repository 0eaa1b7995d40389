#include "core/quantization.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "infini/ops/operator.h"

namespace infini::ops {
namespace {

bool HasOneElement(const Tensor& tensor) { return tensor.element_count() == 1; }

// True if the quantized tensor has the shape of the input, `fits` all other tensors that are
// written, and the others have one element.
template <typename Function>
bool HasScales(const Invocation& call, const Function& fits) {
  const Span<std::int64_t> shape = call.tensor(0).shape();
  const std::size_t result = call.FirstWritten();
  for (std::size_t i = 1; i < call.size; ++i) {
    if (call.arguments[i].tag != Argument::Tag::kTensor) continue;
    const Tensor& tensor = call.tensor(i);
    const bool holds = i == result ? std::equal(shape.begin(), shape.end(), tensor.shape().begin(),
                                                tensor.shape().end())
                       : call.parameters[i].is_out ? fits(tensor)
                                                   : HasOneElement(tensor);
    if (!holds) return false;
  }
  return true;
}

// True if `scales` has the shape of the input, with this size of the last dimension.
bool IsPerRow(const Tensor& scales, Span<std::int64_t> input, std::int64_t last) {
  const Span<std::int64_t> shape = scales.shape();
  return shape.size() == input.size() && shape[shape.size() - 1] == last &&
         std::equal(input.begin(), input.end() - 1, shape.begin());
}

}  // namespace

bool HasTensorScale(const Invocation& call) { return HasScales(call, HasOneElement); }

bool HasTokenScale(const Invocation& call) {
  const Span<std::int64_t> shape = call.tensor(0).shape();
  if (shape.size() == 0 || shape[shape.size() - 1] == 0) return false;
  const std::int64_t tokens = call.tensor(0).element_count() / shape[shape.size() - 1];
  return HasScales(call, [&](const Tensor& scales) {
    const std::int64_t flat[] = {tokens, shape[shape.size() - 1]};
    return IsPerRow(scales, shape, 1) || IsPerRow(scales, {flat, 2}, 1);
  });
}

bool HasGroupScale(const Invocation& call) {
  const Span<std::int64_t> shape = call.tensor(0).shape();
  const auto size = call.arguments[1].scalar.To<std::int64_t>();
  const auto eps = call.arguments[2].scalar.To<double>();
  const auto least = call.arguments[3].scalar.To<double>();
  const auto most = call.arguments[4].scalar.To<double>();
  const bool is_int8 = call.out().data_type() == DataType::kInt8;
  if (shape.size() == 0 || size < 1 || shape[shape.size() - 1] % size != 0) return false;
  return eps > 0 && (is_int8 ? -128 : -448) <= least && least <= 0 && 0 < most &&
         most <= (is_int8 ? 127 : 448) && HasScales(call, [&](const Tensor& scales) {
           return IsPerRow(scales, shape, shape[shape.size() - 1] / size);
         });
}

}  // namespace infini::ops
