// Generated from demo.yaml and the ATen schemas of torch TORCH. Do not edit.
// clang-format off
//
// Operators without a kernel of PrivateUse1 run on the CPU: their arguments are copied
// there, and their results back. If your backend has its own fallback, leave this file out of the
// build.
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

void fall_back_to_cpu(const c10::OperatorHandle & op, torch::jit::Stack * stack) {
  // A view of a copy would not share memory with the original tensor.
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
}

// torch has kernels of these operators for every device, but they work only on torch's own devices.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char * name : {
           "conj_physical_",
       }) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&fall_back_to_cpu>());
  }
}

}  // namespace
