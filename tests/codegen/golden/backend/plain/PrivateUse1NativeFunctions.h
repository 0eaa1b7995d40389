// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
#pragma once

#include <ATen/Tensor.h>
#include "demo/types.h"
#include <vector>

namespace demo::native {

// The kernels of PrivateUse1, for you to define.
struct DemoFunctions {
  static ::std::tuple<::std::vector<at::Tensor>,at::Tensor> _amp_foreach_non_finite_check_and_unscale(at::TensorList self, const at::Tensor & found_inf, const at::Tensor & inv_scale);
  static ::std::tuple<at::Tensor &,at::Tensor &> log_sigmoid_forward_out(const at::Tensor & self, at::Tensor & output, at::Tensor & buffer);
  static ::std::tuple<at::Tensor,at::Tensor,at::Tensor,at::Tensor,at::Tensor> _native_batch_norm_legit_functional(const at::Tensor & input, const ::std::optional<at::Tensor> & weight, const ::std::optional<at::Tensor> & bias, const at::Tensor & running_mean, const at::Tensor & running_var, bool training, double momentum, double eps);
  static ::std::tuple<at::Tensor,at::Tensor> median(const at::Tensor & self, int64_t dim, bool keepdim);
  static at::Tensor & glu_backward_out(const at::Tensor & grad_output, const at::Tensor & self, int64_t dim, at::Tensor & grad_input);
  static at::Tensor & hardswish_out(const at::Tensor & self, at::Tensor & out);
  static at::Tensor & masked_select_out(const at::Tensor & self, const at::Tensor & mask, at::Tensor & out);
  static at::Tensor & mul_out(const at::Tensor & self, const at::Tensor & other, at::Tensor & out);
  static at::Tensor & searchsorted_out(const at::Tensor & sorted_sequence, const at::Tensor & self, bool out_int32, bool right, ::std::optional<c10::string_view> side, const ::std::optional<at::Tensor> & sorter, at::Tensor & out);
  static at::Tensor _copy_from(const at::Tensor & self, const at::Tensor & dst, bool non_blocking);
  static at::Tensor abs(const at::Tensor & self);
  static at::Tensor add(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha);
  static at::Tensor arange(const at::Scalar & start, const at::Scalar & end, const at::Scalar & step, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory);
  static at::Tensor cat(const at::ITensorListRef & tensors, int64_t dim);
  static at::Tensor empty(at::IntArrayRef size, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory, ::std::optional<at::MemoryFormat> memory_format);
  static at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, ::std::optional<at::ScalarType> dtype, ::std::optional<at::Layout> layout, ::std::optional<at::Device> device, ::std::optional<bool> pin_memory);
  static at::Tensor mm(const at::Tensor & self, const at::Tensor & mat2);
  static at::Tensor view_symint(const at::Tensor & self, c10::SymIntArrayRef size);
  static const at::Tensor & resize_(const at::Tensor & self, at::IntArrayRef size, ::std::optional<at::MemoryFormat> memory_format);
};

}  // namespace demo::native
