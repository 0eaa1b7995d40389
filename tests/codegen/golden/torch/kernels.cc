// Generated from the ATen schemas of torch TORCH. Do not edit.
#include "torch/kernel.h"

#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/topk_ops.h>

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
    KERNEL(cat_out),
    KERNEL(clamp_out),
    KERNEL(clamp_Tensor_out),
    KERNEL(index_put_),
    KERNEL(_softmax_out),
    KERNEL(mean_dtype_out),
    KERNEL(mean_out),
    KERNEL(topk_values),
};

}  // namespace infini::ops::generated
