// Generated from the ATen schemas of torch TORCH. Do not edit.
#include "core/generated.h"
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

using torch_backend::Invoke;

// In the order of the operator table.
extern const Kernel kTorchKernels[] = {
    Invoke<at::_ops::abs_out>,
    Invoke<at::_ops::abs_>,
    Invoke<at::_ops::add_out>,
    Invoke<at::_ops::add_Scalar_out>,
    Invoke<at::_ops::cat_out>,
    Invoke<at::_ops::clamp_out>,
    Invoke<at::_ops::clamp_Tensor_out>,
    Invoke<at::_ops::index_put_>,
    Invoke<at::_ops::_softmax_out>,
    Invoke<at::_ops::mean_dtype_out>,
    Invoke<at::_ops::mean_out>,
    Invoke<at::_ops::topk_values>,
};

}  // namespace infini::ops::generated
