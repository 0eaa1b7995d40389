// An operator with a gradient of its own: registered for the autograd key, it is asked before
// torch's own formula. Below autograd, torch makes `linear` of smaller operators.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "PrivateUse1NativeFunctions.h"

namespace simulated {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct Linear : torch::autograd::Function<Linear> {
  static Variable forward(AutogradContext* context, const Variable& input, const Variable& weight,
                          const std::optional<at::Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({input, weight});
    return at::linear(input, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Variable &input = saved[0], &weight = saved[1], &gradient = gradients[0];
    const Variable rows = gradient.reshape({-1, gradient.size(-1)});
    return {context->needs_input_grad(0) ? gradient.matmul(weight) : Variable(),
            context->needs_input_grad(1) ? rows.t().mm(input.reshape({-1, input.size(-1)}))
                                         : Variable(),
            context->needs_input_grad(2) ? rows.sum(0) : Variable()};
  }
};

}  // namespace

at::Tensor Kernels::linear(const at::Tensor& input, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias) {
  return Linear::apply(input, weight, bias);
}

}  // namespace simulated
