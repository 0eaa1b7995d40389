#ifndef INFINI_OPS_TORCH_COPIES_H_
#define INFINI_OPS_TORCH_COPIES_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <deque>

#include "infini/ops/operator.h"
#include "torch/quirks.h"

namespace infini::ops::torch_backend {

// The arguments of a call with copies in place of the tensors that a kernel with a quirk can't
// take. The invocation's tensors are all torch's.
class Copies {
 public:
  // Throws `c10::Error`, as other kernels do, for an out of which one element stands for several.
  Copies(const Invocation& invocation, Quirk quirk);

  const Argument* data() const { return arguments_.data(); }

  // To be called after the kernel: gives the outs what was written to their copies.
  void WriteBack() const;

 private:
  struct Copy {
    at::Tensor original;
    at::Tensor copy;
    bool is_written;
  };

  c10::SmallVector<Argument, 8> arguments_;
  std::deque<Copy> copies_;  // a deque, so that the tensors stay where they are
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_COPIES_H_
