#ifndef INFINI_OPS_TORCH_QUIRKS_H_
#define INFINI_OPS_TORCH_QUIRKS_H_

#include <string_view>

// Where kernels of torch itself write wrong values, or to memory that is not theirs, for
// arguments that the other kernels take or refuse.
namespace infini::ops::torch_backend {

enum class Quirk {
  kNone,
  // The kernel takes tensors for contiguous without looking: it gets contiguous copies.
  kIgnoresStrides,
  // The same for outs only.
  kIgnoresOutStrides,
  // The kernel does not refuse outs of which one element stands for several: we do.
  kIgnoresOverlap,
  // The kernel takes the outs for contiguous ones of the largest input's shape, if only as scratch
  // for a result of another shape, whatever lies behind them in memory: it gets such.
  kTrustsOuts,
};

// `operator_name` is the public name.
Quirk QuirkOf(std::string_view operator_name);

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_QUIRKS_H_
