#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/requirements.h"
#include "infini/ops/operator.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

namespace infini::ops {
namespace {

class RefusedCall : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// It adds no measurable cost to a call (26 to 30 ns of dispatch with and without it). The
// initial-exec model is not cheaper, and a process has little room for it.
thread_local Call last_call;

// Runs an implementation, and records it afterwards: an implementation can call operators itself.
void Run(const Overload& overload, const Selection& selection, const Invocation& invocation) {
  const Implementation& implementation = selection.implementation;
  struct Record {
    const Call call;
    ~Record() { last_call = call; }
  } const record{{&overload, implementation.device, implementation.slot}};
  if (!selection.is_supported && !implementation.Takes(invocation)) {
    throw RefusedCall(Refusal(overload, implementation, invocation));
  }
  implementation.kernel(invocation, implementation.data);
}

// The torch slot takes torch's own tensors directly. Every other slot takes views.
bool TakesForeign(const Implementation& implementation) {
  return implementation.slot == static_cast<int>(Slot::kTorch);
}

// The devices of the tensors among the arguments.
struct Devices {
  // The first one on an accelerator, or else the first one: a scalar tensor on the CPU can precede
  // it.
  std::optional<Device> main;
  bool mixed = false;

  void Add(Device device) {
    mixed |= main.value_or(device) != device;
    if (!main || main->type() == Device::Type::kCpu) main = device;
  }

  void Add(const Tensor& tensor) {
    if (tensor.defined()) Add(tensor.device());
  }

  void AddAll(Span<Argument> arguments) {
    for (const Argument& argument : arguments) {
      switch (argument.tag) {
        case Argument::Tag::kTensor:
        case Argument::Tag::kTensors:
          for (std::uint32_t i = 0; i < argument.size; ++i) Add(argument.As<Tensor>()[i]);
          break;
        case Argument::Tag::kArguments:
          AddAll({argument.As<Argument>(), argument.size});
          break;
#ifdef INFINI_OPS_WITH_TORCH
        case Argument::Tag::kForeignTensor:
          Add(torch_backend::DeviceOf(argument.As<void>()));
          break;
        case Argument::Tag::kForeignTensors:
          for (std::uint32_t i = 0; i < argument.size; ++i) {
            const void* tensor = torch_backend::ElementOf(argument.As<void>(), i);
            if (tensor) Add(torch_backend::DeviceOf(tensor));
          }
          break;
#endif
        default:
          break;
      }
    }
  }
};

// If tensors are on several devices, only torch knows whether the call is valid (it accepts a
// scalar tensor on the CPU, for instance). Returns the slot to use instead of `slot`.
std::optional<int> SlotForMixedDevices(const Overload& overload, const Invocation& invocation,
                                       std::optional<int> slot) {
  for (const Implementation& implementation : overload.implementations) {
    if (implementation.device == invocation.device.type() && TakesForeign(implementation) &&
        slot.value_or(implementation.slot) == implementation.slot) {
      return implementation.slot;
    }
  }
  throw std::invalid_argument(std::string(overload.operator_name) +
                              ": the tensors are on more than one device");
}

// The arguments in the form that implementations take: views instead of torch's tensors, and lists
// of tensors instead of the lists of arguments that Python lists are converted to.
class Views {
 public:
  explicit Views(Span<Argument> arguments) : arguments_(arguments.begin(), arguments.end()) {
    // Reserve first, so that the addresses stored in `arguments_` stay valid.
    tensors_.reserve(arguments.size());
    for (Argument& argument : arguments_) {
      if (argument.tag == Argument::Tag::kForeignTensor) {
        argument = tensors_.emplace_back(ViewOf(argument));
      } else if (argument.tag == Argument::Tag::kArguments ||
                 argument.tag == Argument::Tag::kForeignTensors) {
        if (lists_.empty()) lists_.reserve(arguments.size());  // most calls have none
        std::vector<Tensor>& list = lists_.emplace_back();
        for (std::uint32_t i = 0; i < argument.size; ++i) list.push_back(ViewAt(argument, i));
        argument = Span<Tensor>(list);
      }
    }
  }

  const Argument* arguments() const { return arguments_.data(); }

 private:
  static Tensor ViewAt(const Argument& list, std::uint32_t index) {
#ifdef INFINI_OPS_WITH_TORCH
    if (list.tag == Argument::Tag::kForeignTensors) {
      const void* tensor = torch_backend::ElementOf(list.As<void>(), index);
      return tensor ? torch_backend::ViewOf(tensor) : Tensor();
    }
#endif
    return ViewOf(list.As<Argument>()[index]);
  }

  static Tensor ViewOf(const Argument& argument) {
    switch (argument.tag) {
      case Argument::Tag::kTensor:
        return *argument.As<Tensor>();
#ifdef INFINI_OPS_WITH_TORCH
      case Argument::Tag::kForeignTensor:
        return torch_backend::ViewOf(argument.As<void>());
#endif
      default:
        return {};
    }
  }

  std::vector<Argument> arguments_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<Tensor>> lists_;
};

#ifdef INFINI_OPS_WITH_TORCH

// Like torch's own calls, so that autograd detects that a saved value has changed, and refuses it.
void CountWrites(const Invocation& invocation) {
  for (std::size_t i = 0; i < invocation.size; ++i) {
    if (!invocation.parameters[i].is_out) continue;
    const Argument& argument = invocation.arguments[i];
    const bool is_foreign = argument.tag == Argument::Tag::kForeignTensor ||
                            argument.tag == Argument::Tag::kForeignTensors;
    if (is_foreign) torch_backend::CountWrites(argument.As<void>(), argument.size);
  }
}

bool HasNative(const Overload& overload, Device::Type device) {
  for (const Implementation& implementation : overload.implementations) {
    if (implementation.device == device && !TakesForeign(implementation)) return true;
  }
  return false;
}

void RunOnViews(const Overload& overload, const Invocation& invocation, std::optional<int> slot) {
  const Views views({invocation.arguments, invocation.size});
  Invocation viewed = invocation;
  viewed.arguments = views.arguments();
  const Selection selection = overload.Select(viewed, slot);
  if (TakesForeign(selection.implementation)) return Run(overload, selection, invocation);
  // Torch's own kernels find the stream themselves.
  const bool has_streams = invocation.device.type() != Device::Type::kCpu;
  if (has_streams && !viewed.stream) viewed.stream = torch_backend::CurrentStream(viewed.device);
  Run(overload, selection, viewed);
}

#else

void RunOnLists(const Overload& overload, const Invocation& invocation, std::optional<int> slot) {
  const Views views({invocation.arguments, invocation.size});
  Invocation viewed = invocation;
  viewed.arguments = views.arguments();
  Run(overload, overload.Select(viewed, slot), viewed);
}

#endif

}  // namespace

const Call& LastCall() { return last_call; }

bool IsRefusal(const std::exception& error) {
  return dynamic_cast<const RefusedCall*>(&error) != nullptr;
}

std::optional<int> FindSlot(const Overload& overload, Span<Argument> arguments,
                            const CallOptions& options) {
  try {
    Devices devices;
    devices.AddAll(arguments);
    const Views views(arguments);
    const Invocation invocation{views.arguments(), arguments.size(),
                                devices.main.value_or(Device()), options.stream,
                                overload.parameters};
    if (devices.mixed)
      return SlotForMixedDevices(overload, invocation, options.implementation_index);
    const Selection selection = overload.Select(invocation, options.implementation_index);
    const bool is_supported =
        selection.is_supported || selection.implementation.Supports(invocation);
    return is_supported ? std::optional(selection.implementation.slot) : std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;  // the call has no device, memory or slot
  }
}

void Dispatch(const Overload& overload, Span<Argument> arguments, const CallOptions& options) {
  Devices devices;
  devices.AddAll(arguments);
  const Invocation invocation{arguments.data(), arguments.size(), devices.main.value_or(Device()),
                              options.stream, overload.parameters};
  const std::optional<int> slot =
      devices.mixed ? SlotForMixedDevices(overload, invocation, options.implementation_index)
                    : options.implementation_index;
#ifdef INFINI_OPS_WITH_TORCH
  // Making views takes longer than a small call, so it is skipped if no implementation needs them.
  if (slot != static_cast<int>(Slot::kTorch) && HasNative(overload, invocation.device.type())) {
    RunOnViews(overload, invocation, slot);
  } else {
    Run(overload, overload.Select(invocation, slot), invocation);
  }
  CountWrites(invocation);
#else
  const bool has_lists = std::any_of(
      arguments.begin(), arguments.end(),
      [](const Argument& argument) { return argument.tag == Argument::Tag::kArguments; });
  if (has_lists) {
    RunOnLists(overload, invocation, slot);
  } else {
    Run(overload, overload.Select(invocation, slot), invocation);
  }
#endif
}

}  // namespace infini::ops
