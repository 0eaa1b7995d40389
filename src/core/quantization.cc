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

// True for one element, or for as many as a row or column has, along one dimension.
bool IsScaleOf(const Tensor& scales, std::int64_t count) {
  const Span<std::int64_t> shape = scales.shape();
  return scales.element_count() == 1 ||
         (scales.element_count() == count && std::count(shape.begin(), shape.end(), 1) + 1 >=
                                                 static_cast<std::ptrdiff_t>(scales.dimensions()));
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

bool HasScaledProduct(const Invocation& call) {
  const Tensor& a = call.tensor(0);
  const Tensor& b = call.tensor(1);
  const Tensor& out = call.out();
  if (a.data_type() != b.data_type() || a.dimensions() != 2 || b.dimensions() != 2 ||
      out.dimensions() != 2) {
    return false;
  }
  const std::int64_t rows = a.shape()[0];
  const std::int64_t columns = b.shape()[1];
  const bool has_bias = call.arguments[4].tag != Argument::Tag::kNone;
  return a.shape()[1] == b.shape()[0] && out.shape()[0] == rows && out.shape()[1] == columns &&
         IsScaleOf(call.tensor(2), rows) && IsScaleOf(call.tensor(3), columns) &&
         (!has_bias || (call.tensor(4).dimensions() == 1 && call.tensor(4).shape()[0] == columns));
}

}  // namespace infini::ops
