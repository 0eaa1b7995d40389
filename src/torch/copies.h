#ifndef INFINI_OPS_TORCH_COPIES_H_
#define INFINI_OPS_TORCH_COPIES_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <deque>

#include "infini/ops/operator.h"
#include "torch/quirks.h"

namespace infini::ops::torch_backend {

// The arguments of a call to a kernel with a quirk: tensors that it can't handle are replaced by
// copies. All tensors of the invocation are torch's.
class Copies {
 public:
  // Throws `c10::Error`, as other kernels do, for an out with overlapping elements.
  Copies(const Invocation& invocation, Quirk quirk);

  const Argument* data() const { return arguments_.data(); }

  // Call this after the kernel: copies the results from the copies to the outs.
  void WriteBack() const;

 private:
  struct Copy {
    at::Tensor original;
    at::Tensor copy;
    bool is_written;
  };

  c10::SmallVector<Argument, 8> arguments_;
  std::deque<Copy> copies_;  // a deque, so that tensors do not move
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_COPIES_H_
