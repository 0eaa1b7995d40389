#ifndef INFINI_OPS_TORCH_QUIRKS_H_
#define INFINI_OPS_TORCH_QUIRKS_H_

#include <string_view>

// Operators for which torch's own kernels write wrong values or out of bounds, for arguments that
// other kernels support or refuse.
namespace infini::ops::torch_backend {

enum class Quirk {
  kNone,
  // The kernel assumes contiguous tensors without a check: it gets contiguous copies.
  kIgnoresStrides,
  // The same, but for outs only.
  kIgnoresOutStrides,
  // The kernel does not refuse outs with overlapping elements: slot 8 does.
  kIgnoresOverlap,
  // The kernel assumes contiguous outs with the shape of the largest input, even if only as scratch
  // for a result of another shape, and writes past other outs: it gets such outs.
  kTrustsOuts,
  // The kernel writes elements of the input's dtype into an out of any dtype, also past its end:
  // slot 8 refuses other dtypes.
  kTrustsDtype,
  // Without a step, torch runs the CPU's kernel on every device, which ends the process: elsewhere
  // the overload with a step is called, which has a kernel per device.
  kNeedsStep,
};

// `operator_name` is the public name.
Quirk QuirkOf(std::string_view operator_name);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_QUIRKS_H_
