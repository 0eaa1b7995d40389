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

// True for arguments with tensors that are not torch's.
inline bool NeedsWrapping(const Argument& argument) {
  return argument.tag == Argument::Tag::kTensor || argument.tag == Argument::Tag::kTensors ||
         argument.tag == Argument::Tag::kArguments;
}

// The arguments of a call; tensors that are not torch's are wrapped in torch tensors.
class WrappedArguments {
 public:
  explicit WrappedArguments(const Invocation& invocation);

  const Argument* data() const { return arguments_.data(); }

  // Replaces inputs that overlap an out by copies. Torch detects overlaps only between tensors of
  // one storage, and views never share one. Throws `std::invalid_argument` for outs that overlap
  // each other.
  void Separate(Span<Parameter> parameters);

  // Call this after the kernel: returns the views to their owners. Throws `std::invalid_argument`
  // for changes that an owner would not see, such as another shape.
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
  // Linked lists: addresses stored in `arguments_` stay valid, and an empty list costs nothing.
  std::list<std::vector<at::Tensor>> lists_;
  std::list<at::Tensor> copies_;
  std::vector<std::pair<std::size_t, std::size_t>> copied_;  // argument, and index in its list
};

}  // namespace infini::ops::torch_backend

#endif  // INFINI_OPS_TORCH_WRAPPED_ARGUMENTS_H_
