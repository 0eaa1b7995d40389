// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
#include "PrivateUse1NativeFunctions.h"

#include <ATen/DeviceGuard.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/glu_backward_ops.h>
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

// Copies between tensors that can be conjugate or negative views: the kernel gets the stored values.
// A kernel for the keys of such views would not do, because a TorchDispatchMode skips these keys.
Tensor copy_stored_values(Tensor (*kernel)(const Tensor &, const Tensor &, bool), const Tensor & self,
                          const Tensor & dst, bool non_blocking) {
  const auto stored = [](const Tensor & view) {
    const Tensor values = view.is_conj() ? view.conj() : view;
    return values.is_neg() ? values._neg_view() : values;
  };
  Tensor values = stored(dst);
  kernel(stored(self), values, non_blocking);
  // Not conj_physical_(), which torch has for its own devices only.
  if (self.is_conj() != dst.is_conj()) values.copy_(values.conj_physical());
  if (self.is_neg() != dst.is_neg()) values.neg_();
  return dst;
}

constexpr DispatchKeySet kMeta_(DispatchKey::Meta);

// An argument with the same shape and type but without values, for a call with the Meta key.
[[maybe_unused]] Tensor on_meta(const Tensor & tensor) {
  if (!tensor.defined()) return tensor;
  Tensor meta = detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  // Python numbers take no part in type promotion.
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

[[maybe_unused]] ::std::optional<Tensor> on_meta(const ::std::optional<Tensor> & tensor) {
  return tensor ? ::std::make_optional(on_meta(*tensor)) : ::std::nullopt;
}

[[maybe_unused]] ::std::vector<Tensor> on_meta(TensorList tensors) {
  ::std::vector<Tensor> metas;
  for (const Tensor & tensor : tensors) metas.push_back(on_meta(tensor));
  return metas;
}

[[maybe_unused]] ::std::vector<Tensor> on_meta(const ITensorListRef & tensors) {
  ::std::vector<Tensor> metas;
  for (const Tensor & tensor : tensors) metas.push_back(on_meta(tensor));
  return metas;
}

[[maybe_unused]] c10::List<::std::optional<Tensor>> on_meta(const c10::List<::std::optional<Tensor>> & tensors) {
  c10::List<::std::optional<Tensor>> metas;
  for (const ::std::optional<Tensor> & tensor : tensors) metas.push_back(on_meta(tensor));
  return metas;
}

// The common device of an operator's tensors. Zero-dimensional ones among them can be on the CPU.
[[maybe_unused]] Device device_among(::std::initializer_list<::std::optional<Device>> devices) {
  for (const auto & device : devices) {
    if (device && !device->is_cpu()) return *device;
  }
  return Device(kCPU);
}

[[maybe_unused]] Tensor empty_as(const Tensor & shape, Device device) {
  if (!shape.defined()) return shape;
  return at::_ops::empty_strided::call(shape.sym_sizes(), shape.sym_strides(), shape.scalar_type(),
                                       ::std::nullopt, device, ::std::nullopt);
}

[[maybe_unused]] ::std::vector<Tensor> empty_as(TensorList shapes, Device device) {
  ::std::vector<Tensor> tensors;
  for (const Tensor & shape : shapes) tensors.push_back(empty_as(shape, device));
  return tensors;
}

[[maybe_unused]] Tensor empty_as(const Tensor & tensor) {
  return at::_ops::empty_like::call(tensor, ::std::nullopt, ::std::nullopt, ::std::nullopt,
                                    ::std::nullopt, ::std::nullopt);
}

[[maybe_unused]] ::std::vector<Tensor> empty_as(TensorList like) {
  ::std::vector<Tensor> tensors;
  for (const Tensor & tensor : like) tensors.push_back(empty_as(tensor));
  return tensors;
}

namespace {

at::Tensor wrapper_PrivateUse1_Tensor_add(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha) {
    // No device check


  const OptionalDeviceGuard device_guard(device_of(self));
  return ::demo::native::DemoFunctions::add(self, other, alpha);
}

} // anonymous namespace

namespace {

at::Tensor & wrapper_PrivateUse1_out_add_out(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha, at::Tensor & out) {
    // No device check


  const OptionalDeviceGuard device_guard(device_of(self));
  return ::demo::native::DemoFunctions::add_out(self, other, alpha, out);
}

} // anonymous namespace

at::Tensor wrapper_PrivateUse1___copy_from(const at::Tensor & self, const at::Tensor & dst, bool non_blocking) {
  return copy_stored_values(&::demo::native::DemoFunctions::_copy_from, self, dst, non_blocking);
}

namespace {

at::Tensor & wrapper_PrivateUse1_grad_input_glu_backward_out(const at::Tensor & grad_output, const at::Tensor & self, int64_t dim, at::Tensor & grad_input) {
  std::optional<Device> common_device = std::nullopt;
(void)common_device; // Suppress unused variable warning

  c10::impl::check_and_update_common_device(common_device, grad_input, "wrapper_PrivateUse1_grad_input_glu_backward_out", "grad_input");
  c10::impl::check_and_update_common_device(common_device, grad_output, "wrapper_PrivateUse1_grad_input_glu_backward_out", "grad_output");
  c10::impl::check_and_update_common_device(common_device, self, "wrapper_PrivateUse1_grad_input_glu_backward_out", "self");

  const OptionalDeviceGuard device_guard(device_of(self));
  return ::demo::native::DemoFunctions::glu_backward_out(grad_output, self, dim, grad_input);
}

} // anonymous namespace

at::Tensor & wrapper_PrivateUse1_Tensor_add_(at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha) {
  auto results_ = wrapper_PrivateUse1_Tensor_add(self, other, alpha);
  update(results_, self);
  return self;
}

at::Tensor wrapper_PrivateUse1___copy_from_and_resize(const at::Tensor & self, const at::Tensor & dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return wrapper_PrivateUse1___copy_from(self, dst, /*non_blocking=*/false);
}

at::Tensor wrapper_PrivateUse1__glu_backward(const at::Tensor & grad_output, const at::Tensor & self, int64_t dim) {
  auto shapes_ = at::_ops::glu_backward::redispatch(kMeta_, on_meta(grad_output), on_meta(self), dim);
  const auto device_ = device_among({device_of(grad_output), device_of(self)});
  auto out0_ = empty_as(shapes_, device_);
  wrapper_PrivateUse1_grad_input_glu_backward_out(grad_output, self, dim, out0_);
  return out0_;
}

// Pointers are passed at run time, so that boxing code is compiled once per signature, not per
// kernel.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", &wrapper_PrivateUse1_Tensor_add);
  m.impl("add_.Tensor", &wrapper_PrivateUse1_Tensor_add_);
  m.impl("add.out", &wrapper_PrivateUse1_out_add_out);
  m.impl("_copy_from", &wrapper_PrivateUse1___copy_from);
  m.impl("_copy_from_and_resize", &wrapper_PrivateUse1___copy_from_and_resize);
  m.impl("glu_backward.grad_input", &wrapper_PrivateUse1_grad_input_glu_backward_out);
  m.impl("glu_backward", &wrapper_PrivateUse1__glu_backward);
}

// copy_ passes conjugate and negative views on to _copy_from. The default kernels of these keys
// would materialize the views, which is again a copy: an endless recursion.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace at
