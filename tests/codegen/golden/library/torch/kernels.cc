// Generated from the ATen schemas of torch TORCH. Do not edit.
#include "torch/kernel.h"

#include <ATen/ops/_foreach_add_ops.h>
#include <ATen/ops/_nested_tensor_from_tensor_list_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/fft_fft2_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>

namespace infini::ops::generated {

using torch_backend::Caller;

#define KERNEL(name)                         \
  {Caller<at::_ops::name::schema>::Call,     \
   reinterpret_cast<TorchKernel::Function>(at::_ops::name::call)}

// In the order of the operator table.
extern const TorchKernel kTorchKernels[] = {
    KERNEL(abs_out),
    KERNEL(abs_),
    KERNEL(add_out),
    KERNEL(add_Scalar_out),
    KERNEL(bmm_out),
    KERNEL(bmm_dtype_out),
    KERNEL(cat_out),
    KERNEL(clamp_out),
    KERNEL(clamp_Tensor_out),
    KERNEL(clone_out),
    KERNEL(fft_fft2_out),
    KERNEL(gelu_),
    KERNEL(index_put_),
    KERNEL(_foreach_add_Scalar_out),
    KERNEL(_foreach_add_List_out),
    KERNEL(_foreach_add_ScalarList_out),
    KERNEL(_foreach_add_Tensor_out),
    KERNEL(_nested_tensor_from_tensor_list_out),
    KERNEL(_softmax_out),
    KERNEL(linear_backward_out),
    KERNEL(mean_dtype_out),
    KERNEL(mean_out),
    KERNEL(normal_Tensor_float_out),
    KERNEL(normal_float_Tensor_out),
    KERNEL(normal_Tensor_Tensor_out),
    KERNEL(normal_float_float_out),
    KERNEL(normal_out),
    KERNEL(random__from),
    KERNEL(random__to),
    KERNEL(random_),
    KERNEL(topk_values),
    KERNEL(upsample_nearest2d_out),
    KERNEL(upsample_nearest2d_vec_out),
};

}  // namespace infini::ops::generated
