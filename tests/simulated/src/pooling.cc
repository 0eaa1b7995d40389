// An operator with a gradient of its own: registered for the autograd key, it replaces torch's
// formula.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include "PrivateUse1NativeFunctions.h"

namespace simulated {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct MaxPool2d : torch::autograd::Function<MaxPool2d> {
  static Variable forward(AutogradContext* context, const Variable& self, at::IntArrayRef kernel,
                          at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                          bool ceil_mode) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto [output, indices] =
        at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
    context->save_for_backward({self, indices});
    context->saved_data["kernel"] = kernel;
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    context->saved_data["dilation"] = dilation;
    context->saved_data["ceil_mode"] = ceil_mode;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto sizes = [context](const char* name) {
      return context->saved_data[name].toIntVector();
    };
    // Only the first of the arguments of `forward` has a gradient.
    variable_list of_arguments(6);
    of_arguments[0] = at::max_pool2d_with_indices_backward(
        gradients[0], saved[0], sizes("kernel"), sizes("stride"), sizes("padding"),
        sizes("dilation"), context->saved_data["ceil_mode"].toBool(), saved[1]);
    return of_arguments;
  }
};

}  // namespace

at::Tensor Kernels::max_pool2d(const at::Tensor& self, at::IntArrayRef kernel_size,
                               at::IntArrayRef stride, at::IntArrayRef padding,
                               at::IntArrayRef dilation, bool ceil_mode) {
  return MaxPool2d::apply(self, kernel_size, stride, padding, dilation, ceil_mode);
}

}  // namespace simulated
