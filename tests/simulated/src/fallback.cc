#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace {

void FallBackToCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&FallBackToCpu>());
}

}  // namespace
