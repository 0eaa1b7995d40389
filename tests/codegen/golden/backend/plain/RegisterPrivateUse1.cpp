// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
#include "PrivateUse1NativeFunctions.h"

#include <ATen/DeviceGuard.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <ATen/ops/searchsorted_ops.h>
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

at::Tensor wrapper_PrivateUse1___copy_from(const at::Tensor & self, const at::Tensor & dst, bool non_blocking) {
  return copy_stored_values(&::demo::native::DemoFunctions::_copy_from, self, dst, non_blocking);
}

at::Tensor & wrapper_PrivateUse1_out_abs_out(const at::Tensor & self, at::Tensor & out) {
  auto results_ = ::demo::native::DemoFunctions::abs(self);
  write_out(results_, out);
  return out;
}

at::Tensor & wrapper_PrivateUse1_Tensor_add_(at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha) {
  auto results_ = ::demo::native::DemoFunctions::add(self, other, alpha);
  update(results_, self);
  return self;
}

at::Tensor & wrapper_PrivateUse1_out_add_out(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha, at::Tensor & out) {
  auto results_ = ::demo::native::DemoFunctions::add(self, other, alpha);
  write_out(results_, out);
  return out;
}

at::Tensor & wrapper_PrivateUse1_start_out_arange_out(const at::Scalar & start, const at::Scalar & end, const at::Scalar & step, at::Tensor & out) {
  auto results_ = ::demo::native::DemoFunctions::arange(start, end, step, out.scalar_type(), out.layout(), out.device(), ::std::nullopt);
  write_out(results_, out);
  return out;
}

at::Tensor & wrapper_PrivateUse1_out_cat_out(const at::ITensorListRef & tensors, int64_t dim, at::Tensor & out) {
  auto results_ = ::demo::native::DemoFunctions::cat(tensors, dim);
  write_out(results_, out);
  return out;
}

at::Tensor wrapper_PrivateUse1___copy_from_and_resize(const at::Tensor & self, const at::Tensor & dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return wrapper_PrivateUse1___copy_from(self, dst, /*non_blocking=*/false);
}

::std::tuple<at::Tensor &,at::Tensor &> wrapper_PrivateUse1_dim_values_median_out(const at::Tensor & self, int64_t dim, bool keepdim, at::Tensor & values, at::Tensor & indices) {
  auto results_ = ::demo::native::DemoFunctions::median(self, dim, keepdim);
  write_out(std::get<0>(results_), values);
  write_out(std::get<1>(results_), indices);
  return ::std::tuple<at::Tensor &,at::Tensor &>(values, indices);
}

::std::tuple<at::Tensor,at::Tensor,at::Tensor> wrapper_PrivateUse1___native_batch_norm_legit(const at::Tensor & input, const ::std::optional<at::Tensor> & weight, const ::std::optional<at::Tensor> & bias, at::Tensor & running_mean, at::Tensor & running_var, bool training, double momentum, double eps) {
  auto results_ = ::demo::native::DemoFunctions::_native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training, momentum, eps);
  update(std::get<3>(results_), running_mean);
  update(std::get<4>(results_), running_var);
  return ::std::tuple<at::Tensor,at::Tensor,at::Tensor>(std::move(std::get<0>(results_)), std::move(std::get<1>(results_)), std::move(std::get<2>(results_)));
}

::std::tuple<at::Tensor &,at::Tensor &,at::Tensor &> wrapper_PrivateUse1_out__native_batch_norm_legit_out(const at::Tensor & input, const ::std::optional<at::Tensor> & weight, const ::std::optional<at::Tensor> & bias, at::Tensor & running_mean, at::Tensor & running_var, bool training, double momentum, double eps, at::Tensor & out, at::Tensor & save_mean, at::Tensor & save_invstd) {
  auto results_ = ::demo::native::DemoFunctions::_native_batch_norm_legit_functional(input, weight, bias, running_mean, running_var, training, momentum, eps);
  write_out(std::get<0>(results_), out);
  write_out(std::get<1>(results_), save_mean);
  write_out(std::get<2>(results_), save_invstd);
  update(std::get<3>(results_), running_mean);
  update(std::get<4>(results_), running_var);
  return ::std::tuple<at::Tensor &,at::Tensor &,at::Tensor &>(out, save_mean, save_invstd);
}

void wrapper_PrivateUse1___amp_foreach_non_finite_check_and_unscale_(at::TensorList self, at::Tensor & found_inf, const at::Tensor & inv_scale) {
  auto results_ = ::demo::native::DemoFunctions::_amp_foreach_non_finite_check_and_unscale(self, found_inf, inv_scale);
  update(std::get<0>(results_), self);
  update(std::get<1>(results_), found_inf);
}

at::Tensor wrapper_PrivateUse1_Tensor_searchsorted(const at::Tensor & sorted_sequence, const at::Tensor & self, bool out_int32, bool right, ::std::optional<c10::string_view> side, const ::std::optional<at::Tensor> & sorter) {
  auto shapes_ = at::_ops::searchsorted_Tensor::redispatch(kMeta_, on_meta(sorted_sequence), on_meta(self), out_int32, right, side, on_meta(sorter));
  const auto device_ = device_among({device_of(sorted_sequence), device_of(self), device_of(sorter)});
  auto out0_ = empty_as(shapes_, device_);
  ::demo::native::DemoFunctions::searchsorted_out(sorted_sequence, self, out_int32, right, side, sorter, out0_);
  return out0_;
}

at::Tensor wrapper_PrivateUse1__glu_backward(const at::Tensor & grad_output, const at::Tensor & self, int64_t dim) {
  auto shapes_ = at::_ops::glu_backward::redispatch(kMeta_, on_meta(grad_output), on_meta(self), dim);
  const auto device_ = device_among({device_of(grad_output), device_of(self)});
  auto out0_ = empty_as(shapes_, device_);
  ::demo::native::DemoFunctions::glu_backward_out(grad_output, self, dim, out0_);
  return out0_;
}

at::Tensor wrapper_PrivateUse1__hardswish(const at::Tensor & self) {
  auto shapes_ = at::_ops::hardswish::redispatch(kMeta_, on_meta(self));
  const auto device_ = device_among({device_of(self)});
  auto out0_ = empty_as(shapes_, device_);
  ::demo::native::DemoFunctions::hardswish_out(self, out0_);
  return out0_;
}

at::Tensor & wrapper_PrivateUse1__hardswish_(at::Tensor & self) {
  auto out0_ = empty_as(self);
  ::demo::native::DemoFunctions::hardswish_out(self, out0_);
  update(out0_, self);
  return self;
}

::std::tuple<at::Tensor,at::Tensor> wrapper_PrivateUse1__log_sigmoid_forward(const at::Tensor & self) {
  auto shapes_ = at::_ops::log_sigmoid_forward::redispatch(kMeta_, on_meta(self));
  const auto device_ = device_among({device_of(self)});
  auto out0_ = empty_as(std::get<0>(shapes_), device_);
  auto out1_ = empty_as(std::get<1>(shapes_), device_);
  ::demo::native::DemoFunctions::log_sigmoid_forward_out(self, out0_, out1_);
  return ::std::tuple<at::Tensor,at::Tensor>(std::move(out0_), std::move(out1_));
}

// Pointers are passed at run time, so that boxing code is compiled once per signature, not per
// kernel.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs", static_cast<at::Tensor (*)(const at::Tensor &)>(&::demo::native::DemoFunctions::abs));
  m.impl("abs.out", &wrapper_PrivateUse1_out_abs_out);
  m.impl("add.Tensor", static_cast<at::Tensor (*)(const at::Tensor &, const at::Tensor &, const at::Scalar &)>(&::demo::native::DemoFunctions::add));
  m.impl("add_.Tensor", &wrapper_PrivateUse1_Tensor_add_);
  m.impl("add.out", &wrapper_PrivateUse1_out_add_out);
  m.impl("arange.start_step", static_cast<at::Tensor (*)(const at::Scalar &, const at::Scalar &, const at::Scalar &, ::std::optional<at::ScalarType>, ::std::optional<at::Layout>, ::std::optional<at::Device>, ::std::optional<bool>)>(&::demo::native::DemoFunctions::arange));
  m.impl("arange.start_out", &wrapper_PrivateUse1_start_out_arange_out);
  m.impl("cat", static_cast<at::Tensor (*)(const at::ITensorListRef &, int64_t)>(&::demo::native::DemoFunctions::cat));
  m.impl("cat.out", &wrapper_PrivateUse1_out_cat_out);
  m.impl("_copy_from", &wrapper_PrivateUse1___copy_from);
  m.impl("_copy_from_and_resize", &wrapper_PrivateUse1___copy_from_and_resize);
  m.impl("empty.memory_format", static_cast<at::Tensor (*)(at::IntArrayRef, ::std::optional<at::ScalarType>, ::std::optional<at::Layout>, ::std::optional<at::Device>, ::std::optional<bool>, ::std::optional<at::MemoryFormat>)>(&::demo::native::DemoFunctions::empty));
  m.impl("resize_", static_cast<const at::Tensor & (*)(const at::Tensor &, at::IntArrayRef, ::std::optional<at::MemoryFormat>)>(&::demo::native::DemoFunctions::resize_));
  m.impl("empty_strided", static_cast<at::Tensor (*)(at::IntArrayRef, at::IntArrayRef, ::std::optional<at::ScalarType>, ::std::optional<at::Layout>, ::std::optional<at::Device>, ::std::optional<bool>)>(&::demo::native::DemoFunctions::empty_strided));
  m.impl("median.dim", static_cast<::std::tuple<at::Tensor,at::Tensor> (*)(const at::Tensor &, int64_t, bool)>(&::demo::native::DemoFunctions::median));
  m.impl("median.dim_values", &wrapper_PrivateUse1_dim_values_median_out);
  m.impl("mul.out", static_cast<at::Tensor & (*)(const at::Tensor &, const at::Tensor &, at::Tensor &)>(&::demo::native::DemoFunctions::mul_out));
  m.impl("_native_batch_norm_legit", &wrapper_PrivateUse1___native_batch_norm_legit);
  m.impl("_native_batch_norm_legit.out", &wrapper_PrivateUse1_out__native_batch_norm_legit_out);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor &, c10::SymIntArrayRef)>(&::demo::native::DemoFunctions::view_symint));
  m.impl("masked_select.out", static_cast<at::Tensor & (*)(const at::Tensor &, const at::Tensor &, at::Tensor &)>(&::demo::native::DemoFunctions::masked_select_out));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", &wrapper_PrivateUse1___amp_foreach_non_finite_check_and_unscale_);
  m.impl("searchsorted.Tensor", &wrapper_PrivateUse1_Tensor_searchsorted);
  m.impl("searchsorted.Tensor_out", static_cast<at::Tensor & (*)(const at::Tensor &, const at::Tensor &, bool, bool, ::std::optional<c10::string_view>, const ::std::optional<at::Tensor> &, at::Tensor &)>(&::demo::native::DemoFunctions::searchsorted_out));
  m.impl("glu_backward.grad_input", static_cast<at::Tensor & (*)(const at::Tensor &, const at::Tensor &, int64_t, at::Tensor &)>(&::demo::native::DemoFunctions::glu_backward_out));
  m.impl("glu_backward", &wrapper_PrivateUse1__glu_backward);
  m.impl("hardswish.out", static_cast<at::Tensor & (*)(const at::Tensor &, at::Tensor &)>(&::demo::native::DemoFunctions::hardswish_out));
  m.impl("hardswish", &wrapper_PrivateUse1__hardswish);
  m.impl("hardswish_", &wrapper_PrivateUse1__hardswish_);
  m.impl("log_sigmoid_forward.output", static_cast<::std::tuple<at::Tensor &,at::Tensor &> (*)(const at::Tensor &, at::Tensor &, at::Tensor &)>(&::demo::native::DemoFunctions::log_sigmoid_forward_out));
  m.impl("log_sigmoid_forward", &wrapper_PrivateUse1__log_sigmoid_forward);
  m.impl("_native_batch_norm_legit_functional", static_cast<::std::tuple<at::Tensor,at::Tensor,at::Tensor,at::Tensor,at::Tensor> (*)(const at::Tensor &, const ::std::optional<at::Tensor> &, const ::std::optional<at::Tensor> &, const at::Tensor &, const at::Tensor &, bool, double, double)>(&::demo::native::DemoFunctions::_native_batch_norm_legit_functional));
  m.impl("_amp_foreach_non_finite_check_and_unscale", static_cast<::std::tuple<::std::vector<at::Tensor>,at::Tensor> (*)(at::TensorList, const at::Tensor &, const at::Tensor &)>(&::demo::native::DemoFunctions::_amp_foreach_non_finite_check_and_unscale));
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
