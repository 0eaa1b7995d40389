// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
#include "PrivateUse1NativeFunctions.h"

#include <ATen/DeviceGuard.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <torch/library.h>

namespace at {
// From ATen/native/Resize.h, which costs 3 CPU-seconds.
namespace native {
TORCH_API bool resize_output(const Tensor & output, IntArrayRef shape);
}
namespace {

// Messages are one text each: of several parts, TORCH_CHECK writes numbers into a stream, which fails
// if the compiler links libstdc++ statically.
[[maybe_unused]] ::std::string text_of(IntArrayRef sizes) {
  ::std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + ::std::to_string(sizes[i]);
  return text + "]";
}

[[maybe_unused]] void check_written(const Tensor & result, const Tensor & written) {
  TORCH_CHECK(result.device() == written.device(), "the result is on " + result.device().str() +
              " and can't be written into a tensor on " + written.device().str());
  TORCH_CHECK(c10::canCast(result.scalar_type(), written.scalar_type()),
              ::std::string("result type ") + toString(result.scalar_type()) +
              " can't be cast to the desired output type " + toString(written.scalar_type()));
}

// Copies a result into an out= argument, which is resized to its shape.
[[maybe_unused]] void write_out(const Tensor & result, const Tensor & out) {
  if (!result.defined()) return;
  TORCH_CHECK(!result.requires_grad(), "out= arguments don't support automatic differentiation, "
              "but one of the arguments requires grad");
  check_written(result, out);
  native::resize_output(out, result.sizes());
  out.copy_(result);
}

// Copies a result into an argument that is written in place, which keeps its shape.
[[maybe_unused]] void update(const Tensor & result, const Tensor & self) {
  if (!result.defined()) return;
  check_written(result, self);
  TORCH_CHECK(result.sizes() == self.sizes(), "output with shape " + text_of(self.sizes()) +
              " doesn't match the broadcast shape " + text_of(result.sizes()));
  self.copy_(result);
}

[[maybe_unused]] void write_out(TensorList results, TensorList outs) {
  TORCH_CHECK(results.size() == outs.size(), "expected " + ::std::to_string(results.size()) +
              " outputs, got " + ::std::to_string(outs.size()));
  for (size_t i = 0; i < results.size(); ++i) write_out(results[i], outs[i]);
}

[[maybe_unused]] void update(TensorList results, TensorList selves) {
  for (size_t i = 0; i < results.size(); ++i) update(results[i], selves[i]);
}

at::Tensor & wrapper_AutogradPrivateUse1_out_mm_out(const at::Tensor & self, const at::Tensor & mat2, at::Tensor & out) {
  auto results_ = ::demo::native::DemoFunctions::mm(self, mat2);
  write_out(results_, out);
  return out;
}

// Pointers are passed at run time, so that boxing code is compiled once per signature, not per
// kernel.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("mm", static_cast<at::Tensor (*)(const at::Tensor &, const at::Tensor &)>(&::demo::native::DemoFunctions::mm));
  m.impl("mm.out", &wrapper_AutogradPrivateUse1_out_mm_out);
}

}  // namespace
}  // namespace at
