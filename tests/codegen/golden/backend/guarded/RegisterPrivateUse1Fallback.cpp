// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
//
// What PrivateUse1 has no kernel for runs on the CPU: arguments are copied there, results
// back. A backend with a fallback of its own leaves this file out of its build.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

void fall_back_to_cpu(const c10::OperatorHandle & op, torch::jit::Stack * stack) {
  // A view of a copy would share nothing with what it is a view of.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
}

// torch has kernels of these for every device, which serve its own only.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char * name : {
           "conj_physical_",
       }) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
  }
}

}  // namespace
