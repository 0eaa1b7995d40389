#include "torch/wrapped_arguments.h"

#include <algorithm>
#include <stdexcept>

#include "torch/overlap.h"

namespace infini::ops::torch_backend {
namespace {

// The view at `index` of a tensor argument or a list of tensors; nullptr if it is not a view.
const Tensor* ViewAt(const Argument& argument, std::uint32_t index) {
  switch (argument.tag) {
    case Argument::Tag::kTensor:
    case Argument::Tag::kTensors:
      return argument.As<Tensor>() + index;
    case Argument::Tag::kArguments:
      return ViewAt(argument.As<Argument>()[index], 0);
    default:
      return nullptr;
  }
}

bool IsTensors(const Argument& argument) {
  return argument.tag == Argument::Tag::kForeignTensor ||
         argument.tag == Argument::Tag::kForeignTensors;
}

bool SameSizes(at::IntArrayRef sizes, Span<std::int64_t> view) {
  return std::equal(sizes.begin(), sizes.end(), view.begin(), view.end());
}

// Checks that ATen has not given the view's tensor another shape or other memory. The view's owner
// would not see that, and would use a part of the values, or old ones, as the result.
void Return(const Tensor& view, const at::Tensor& wrapped) {
  if (!view.defined()) return;
  if (!SameSizes(wrapped.sizes(), view.shape())) {
    const Span<std::int64_t> shape{wrapped.sizes().data(), wrapped.sizes().size()};
    throw std::invalid_argument("an output of shape " + DescribeShape(shape) + " was given as " +
                                Describe(view) + ", which can't be resized");
  }
  if (wrapped.storage().use_count() > 1) {
    throw std::invalid_argument("the operator keeps a reference to " + Describe(view) +
                                ", whose memory is only borrowed; pass a torch tensor");
  }
  if (!SameSizes(wrapped.strides(), view.strides()) || wrapped.storage_offset() != 0 ||
      wrapped.requires_grad()) {
    throw std::invalid_argument("the operator changes more than the values of " + Describe(view) +
                                ", which is not a torch tensor; pass a torch tensor");
  }
  // A loss has used it as scratch of another shape, so torch has allocated more memory for it.
  if (wrapped.storage().data() != view.data()) MakeAround(view).copy_(wrapped);
}

}  // namespace

WrappedArguments::WrappedArguments(const Invocation& invocation)
    : given_(invocation.arguments),
      arguments_(invocation.arguments, invocation.arguments + invocation.size) {
  for (Argument& argument : arguments_) {
    if (argument.tag == Argument::Tag::kTensor) {
      argument = Argument::ForeignTensor(&shells_.Around(*argument.As<Tensor>()));
    } else if (NeedsWrapping(argument)) {
      const auto& list = lists_.emplace_back(WrapList(argument));
      argument = Argument::ForeignTensors(list.data(), list.size());
    }
  }
}

void WrappedArguments::Separate(Span<Parameter> parameters) {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!parameters[i].is_out) continue;
    for (std::size_t j = 0; j < TensorsAt(i).size(); ++j) {
      for (std::size_t k = 0; k < arguments_.size(); ++k) {
        if (parameters[k].type != Parameter::Type::kTensor) continue;
        parameters[k].is_out ? CheckApart(i, j, k) : SeparateFrom(i, j, k);
      }
    }
  }
}

void WrappedArguments::Return() const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (!NeedsWrapping(given_[i])) continue;
    for (std::uint32_t j = 0; j < given_[i].size; ++j) {
      const Tensor* view = ViewAt(given_[i], j);
      if (view && !IsCopied(i, j)) {
        torch_backend::Return(*view, arguments_[i].As<at::Tensor>()[j]);
      }
    }
  }
}

at::TensorList WrappedArguments::TensorsAt(std::size_t i) const {
  if (!IsTensors(arguments_[i])) return {};
  return {arguments_[i].As<at::Tensor>(), arguments_[i].size};
}

// True if either tensor is a view. Torch checks its own tensors.
bool WrappedArguments::AnyView(std::size_t i, std::size_t j, std::size_t k, std::size_t l) const {
  return (NeedsWrapping(given_[i]) && ViewAt(given_[i], j)) ||
         (NeedsWrapping(given_[k]) && ViewAt(given_[k], l));
}

bool WrappedArguments::IsCopied(std::size_t i, std::size_t j) const {
  return std::find(copied_.begin(), copied_.end(), std::pair(i, j)) != copied_.end();
}

void WrappedArguments::CheckApart(std::size_t i, std::size_t j, std::size_t k) const {
  for (std::size_t l = 0; l < TensorsAt(k).size(); ++l) {
    if (std::pair(i, j) >= std::pair(k, l) || !AnyView(i, j, k, l)) continue;
    if (Overlap(TensorsAt(i)[j], TensorsAt(k)[l])) {
      throw std::invalid_argument(
          "two outs share memory, so that they overwrite each other; pass "
          "separate tensors");
    }
  }
}

void WrappedArguments::SeparateFrom(std::size_t i, std::size_t j, std::size_t k) {
  for (std::size_t l = 0; l < TensorsAt(k).size(); ++l) {
    const at::Tensor& input = TensorsAt(k)[l];
    if (!AnyView(i, j, k, l) || !MayOverlap(TensorsAt(i)[j], input)) continue;
    copied_.emplace_back(k, l);
    if (given_[k].tag == Argument::Tag::kTensor || given_[k].tag == Argument::Tag::kForeignTensor) {
      arguments_[k] = Argument::ForeignTensor(&copies_.emplace_back(input.clone()));
    } else {
      const_cast<at::Tensor&>(input) = input.clone();  // an element of one of `lists_`
    }
  }
}

std::vector<at::Tensor> WrappedArguments::WrapList(const Argument& list) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(list.size);
  for (std::uint32_t i = 0; i < list.size; ++i) {
    if (const Tensor* view = ViewAt(list, i)) {
      tensors.push_back(shells_.Around(*view));
    } else {
      const Argument& element = list.As<Argument>()[i];
      const bool is_torch = element.tag == Argument::Tag::kForeignTensor;
      tensors.push_back(is_torch ? *element.As<at::Tensor>() : at::Tensor());
    }
  }
  return tensors;
}

}  // namespace infini::ops::torch_backend
