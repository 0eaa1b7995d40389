// Operators for which torch has a kernel for all devices that does not serve here: it follows the
// addresses of elements, looks for a kernel in a table that has one for the CPU alone, or rounds
// otherwise than the CPU's. They would end in a crash, an error or other results.

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

namespace simulated {
namespace {

void FallBackToCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

constexpr const char* kOnCpuOnly[] = {
    // They follow addresses.
    "_grid_sampler_2d_cpu_fallback",
    "_sobol_engine_draw",
    "_sobol_engine_ff_",
    "_sobol_engine_initialize_state_",
    "_sobol_engine_scramble_",
    "range",
    "range.out_",
    "range.step",
    // They look into a table, or ask for the CPU.
    "_batch_norm_no_update",
    "_nnpack_spatial_convolution",
    "_stack.out",
    "conj_physical_",
    "kaiser_window",
    "kaiser_window.beta",
    "kaiser_window.periodic",
    "mkldnn_convolution",
    "mode",
    "mode.values",
    // They round the product before they add it, in types shorter than float.
    "addr",
    "addr.out",
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* const name : kOnCpuOnly) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&FallBackToCpu>());
  }
}

}  // namespace
}  // namespace simulated
