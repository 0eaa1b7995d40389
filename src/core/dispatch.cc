#include <vector>

#include "infini/ops/operator.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

namespace infini::ops {
namespace {

// The torch slot takes torch's own tensors as they are; every other slot takes views.
bool TakesForeign(const Implementation& implementation) {
  return implementation.slot == static_cast<int>(Slot::kTorch);
}

std::optional<Device> FindDevice(Span<Argument> arguments) {
  for (const Argument& argument : arguments) {
    switch (argument.tag) {
      case Argument::Tag::kTensor:
        return argument.As<Tensor>()->device();
      case Argument::Tag::kTensors:
        if (argument.size > 0) return argument.As<Tensor>()->device();
        break;
      case Argument::Tag::kArguments:
        if (auto found = FindDevice({argument.As<Argument>(), argument.size})) return found;
        break;
#ifdef INFINI_OPS_WITH_TORCH
      case Argument::Tag::kForeignTensor:
        return torch_backend::DeviceOf(argument.As<void>());
#endif
      default:
        break;
    }
  }
  return std::nullopt;
}

#ifdef INFINI_OPS_WITH_TORCH

// The arguments with views in place of torch's tensors.
class Views {
 public:
  explicit Views(Span<Argument> arguments) : arguments_(arguments.begin(), arguments.end()) {
    // Reserved, so that the addresses put into `arguments_` stay.
    tensors_.reserve(arguments.size());
    lists_.reserve(arguments.size());
    for (Argument& argument : arguments_) {
      if (argument.tag == Argument::Tag::kForeignTensor) {
        argument = tensors_.emplace_back(ViewOf(argument));
      } else if (argument.tag == Argument::Tag::kArguments) {
        std::vector<Tensor>& list = lists_.emplace_back();
        for (std::uint32_t i = 0; i < argument.size; ++i) {
          list.push_back(ViewOf(argument.As<Argument>()[i]));
        }
        argument = Span<Tensor>(list);
      }
    }
  }

  const Argument* arguments() const { return arguments_.data(); }

 private:
  static Tensor ViewOf(const Argument& argument) {
    switch (argument.tag) {
      case Argument::Tag::kTensor:
        return *argument.As<Tensor>();
      case Argument::Tag::kForeignTensor:
        return torch_backend::ViewOf(argument.As<void>());
      default:
        return {};
    }
  }

  std::vector<Argument> arguments_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<Tensor>> lists_;
};

bool HasNative(const Overload& overload, Device::Type device) {
  for (const Implementation& implementation : overload.implementations) {
    if (implementation.device == device && !TakesForeign(implementation)) return true;
  }
  return false;
}

#endif

}  // namespace

void Dispatch(const Overload& overload, Span<Argument> arguments, const CallOptions& options) {
  const std::optional<int> slot = options.implementation_index;
  Invocation invocation{arguments.data(), arguments.size(),
                        FindDevice(arguments).value_or(Device()), options.stream};
#ifdef INFINI_OPS_WITH_TORCH
  // Making views costs more than a small call, so it is left out where no implementation
  // would look at them.
  if (slot != static_cast<int>(Slot::kTorch) && HasNative(overload, invocation.device.type())) {
    const Views views(arguments);
    Invocation viewed = invocation;
    viewed.arguments = views.arguments();
    const Implementation& implementation = overload.Select(viewed, slot);
    implementation.kernel(TakesForeign(implementation) ? invocation : viewed);
    return;
  }
#endif
  overload.Select(invocation, slot).kernel(invocation);
}

}  // namespace infini::ops
