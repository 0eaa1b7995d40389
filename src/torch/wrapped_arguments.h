#ifndef INFINI_OPS_TORCH_WRAPPED_ARGUMENTS_H_
#define INFINI_OPS_TORCH_WRAPPED_ARGUMENTS_H_

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <list>
#include <utility>
#include <vector>

#include "infini/ops/operator.h"
#include "torch/shells.h"

namespace infini::ops::torch_backend {

// True for arguments that hold tensors which are not torch's.
inline bool NeedsWrapping(const Argument& argument) {
  return argument.tag == Argument::Tag::kTensor || argument.tag == Argument::Tag::kTensors ||
         argument.tag == Argument::Tag::kArguments;
}

// The arguments of a call, with torch tensors around those that are not torch's.
class WrappedArguments {
 public:
  explicit WrappedArguments(const Invocation& invocation);

  const Argument* data() const { return arguments_.data(); }

  // Puts copies in place of the inputs whose memory the call may write: torch sees overlaps only
  // between tensors of one storage, which views never are. Throws `std::invalid_argument` for
  // outs that overlap.
  void Separate(Span<Parameter> parameters);

  // To be called after the kernel: hands the views back to their owners. Throws
  // `std::invalid_argument` for what an owner would not see, such as another shape.
  void Return() const;

 private:
  at::TensorList TensorsAt(std::size_t i) const;
  bool AnyView(std::size_t i, std::size_t j, std::size_t k, std::size_t l) const;
  bool IsCopied(std::size_t i, std::size_t j) const;
  void CheckApart(std::size_t i, std::size_t j, std::size_t k) const;
  void SeparateFrom(std::size_t i, std::size_t j, std::size_t k);
  std::vector<at::Tensor> WrapList(const Argument& list);

  ShellLoan shells_;
  const Argument* const given_;
  c10::SmallVector<Argument, 8> arguments_;
  // Linked lists: the addresses put into `arguments_` stay, and an empty one costs nothing.
  std::list<std::vector<at::Tensor>> lists_;
  std::list<at::Tensor> copies_;
  std::vector<std::pair<std::size_t, std::size_t>> copied_;  // argument and place in its list
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_WRAPPED_ARGUMENTS_H_
