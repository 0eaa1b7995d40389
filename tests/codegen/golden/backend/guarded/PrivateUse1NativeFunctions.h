// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
#pragma once

#include <ATen/Tensor.h>
#include "demo/types.h"
#include <vector>

namespace demo::native {

// The kernels of PrivateUse1, for you to define.
struct DemoFunctions {
  static at::Tensor & add_out(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha, at::Tensor & out);
  static at::Tensor & glu_backward_out(const at::Tensor & grad_output, const at::Tensor & self, int64_t dim, at::Tensor & grad_input);
  static at::Tensor _copy_from(const at::Tensor & self, const at::Tensor & dst, bool non_blocking);
  static at::Tensor add(const at::Tensor & self, const at::Tensor & other, const at::Scalar & alpha);
};

}  // namespace demo::native
