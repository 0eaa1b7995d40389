#include "torch/copies.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/accumulate.h>

#include <stdexcept>
#include <string>

#include "torch/tensors.h"

// From ATen/native/Resize.h, whose inclusion costs 5 CPU-seconds.
namespace at::native {
bool resize_output(const Tensor& output, IntArrayRef shape);
}

namespace infini::ops::torch_backend {
namespace {

bool HasStrides(const at::Tensor& tensor) {
  return IsStrided(tensor) && !tensor.key_set().has(c10::DispatchKey::Python);
}

// The outs are at the end. Other written arguments are also inputs.
std::size_t FirstOut(Span<Parameter> parameters) {
  std::size_t first = parameters.size();
  while (first > 0 && parameters[first - 1].is_out) --first;
  return first;
}

at::IntArrayRef LargestShape(Span<Argument> inputs) {
  const at::Tensor* largest = nullptr;
  for (const Argument& input : inputs) {
    if (input.tag != Argument::Tag::kForeignTensor) continue;
    const auto* tensor = input.As<at::Tensor>();
    if (!HasStrides(*tensor)) continue;
    if (!largest || tensor->numel() > largest->numel()) largest = tensor;
  }
  return largest ? largest->sizes() : at::IntArrayRef();
}

// The copy that the kernel gets instead of `tensor`; undefined if it can use `tensor` itself.
at::Tensor CopyFor(Quirk quirk, const at::Tensor& tensor, bool is_out, at::IntArrayRef shape) {
  if (quirk == Quirk::kIgnoresOverlap || quirk == Quirk::kTrustsDtype) return {};
  // Quirks are those of the CPU's kernels, which other devices may fall back to. CUDA has its own,
  // of which some refuse what is contiguous: `_scaled_mm` its second operand.
  if (!is_out && (quirk != Quirk::kIgnoresStrides || tensor.is_cuda())) return {};
  // If there is only one element, torch does not resize.
  const bool is_one = tensor.numel() == 1 && c10::multiply_integers(shape) == 1;
  if (quirk == Quirk::kTrustsOuts && tensor.sizes() != shape && !is_one) {
    return tensor.new_empty(shape);
  }
  return tensor.is_contiguous() ? at::Tensor() : tensor.contiguous();
}

void CheckDtype(const at::Tensor& out, const at::Tensor& input) {
  if (out.scalar_type() == input.scalar_type()) return;
  throw std::runtime_error(std::string("out: got dtype ") + c10::toString(out.scalar_type()) +
                           ", expected " + c10::toString(input.scalar_type()) +
                           ", the input's: torch would write past the end of a smaller one");
}

}  // namespace

Copies::Copies(const Invocation& invocation, Quirk quirk)
    : arguments_(invocation.arguments, invocation.arguments + invocation.size) {
  const std::size_t first_out = FirstOut(invocation.parameters);
  const at::IntArrayRef shape = LargestShape({invocation.arguments, first_out});
  for (std::size_t i = 0; i < invocation.size; ++i) {
    if (arguments_[i].tag != Argument::Tag::kForeignTensor) continue;
    const at::Tensor& tensor = *arguments_[i].As<at::Tensor>();
    if (!HasStrides(tensor)) continue;
    const bool is_written = invocation.parameters[i].is_out;
    if (is_written) at::assert_no_internal_overlap(tensor);
    if (is_written && quirk == Quirk::kTrustsDtype) {
      CheckDtype(tensor, *arguments_[0].As<at::Tensor>());
    }
    at::Tensor copy = CopyFor(quirk, tensor, i >= first_out, shape);
    if (!copy.defined()) continue;
    copies_.push_back({tensor, std::move(copy), is_written});
    arguments_[i] = Argument::ForeignTensor(&copies_.back().copy);
  }
}

void Copies::WriteBack() const {
  for (const Copy& copy : copies_) {
    if (!copy.is_written) continue;
    at::native::resize_output(copy.original, copy.copy.sizes());
    copy.original.copy_(copy.copy);
  }
}

}  // namespace infini::ops::torch_backend
