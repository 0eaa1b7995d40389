#ifndef INFINI_OPS_OPERATOR_H_
#define INFINI_OPS_OPERATOR_H_

#include <exception>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "infini/ops/argument.h"
#include "infini/ops/export.h"
#include "infini/ops/requirements.h"
#include "infini/ops/schema.h"
#include "infini/ops/slot.h"

namespace infini::ops {

// One call, ready to run: the arguments in schema order, outs last.
struct Invocation {
  const Tensor& tensor(std::size_t index) const { return *arguments[index].As<Tensor>(); }
  // Of a hand-written operator: the tensor that is written first.
  const Tensor& out() const { return tensor(FirstWritten()); }
  std::size_t FirstWritten() const {
    std::size_t index = 0;
    while (!parameters[index].is_out) ++index;
    return index;
  }

  const Argument* arguments = nullptr;
  std::size_t size = 0;
  Device device;
  // The vendor's handle of the stream to run on: the caller's stream, or otherwise torch's current
  // one; nullptr for the default stream.
  void* stream = nullptr;
  Span<Parameter> parameters = {};  // one per argument
};

// `data` is the pointer that the implementation was registered with.
using Kernel = void (*)(const Invocation& invocation, const void* data);
// Returns true if a kernel can run here. nullptr: it can.
using Predicate = bool (*)(const Invocation& invocation);

// An implementation of one (overload, device, slot).
struct INFINI_OPS_API Implementation {
  Device::Type device;
  int slot;
  Kernel kernel;
  Predicate supports = nullptr;
  void (*clear_cache)() = nullptr;             // nullptr: keeps nothing between calls
  const void* data = nullptr;                  // handed to `kernel`
  const Requirements* requirements = nullptr;  // nullptr: takes all that fits the schema
  const Limits* limits = nullptr;

  // True if the arguments meet the requirements, within the limits.
  bool Takes(const Invocation& invocation) const { return !requirements || Check(invocation); }
  bool Supports(const Invocation& invocation) const {
    return Takes(invocation) && (!supports || supports(invocation));
  }

 private:
  bool Check(const Invocation& invocation) const;
};

// The implementation of a call, and whether it is known to support the call.
struct Selection {
  const Implementation& implementation;
  bool is_supported;
};

// One schema of an operator and its implementations, in the order in which calls try them: the
// measured slots of slot_order.h, the fastest first, and then the others by number.
struct INFINI_OPS_API Overload {
  const char* operator_name;
  const char* name;  // ATen's overload name, "" or "out" for instance
  Span<Parameter> parameters;
  const char* signature;  // "Tensor input, Tensor out"; nullptr if another library has added it
  std::vector<Implementation> implementations;

  // The implementation at `slot`. Without a slot: the first that supports the call, or the one with
  // the lowest slot if none does. Throws `std::invalid_argument` that lists the active slots.
  Selection Select(const Invocation& invocation, std::optional<int> slot) const;
};

// An operator by its public name. The overloads are in the order in which calls try them. They are
// in a list, so that references stay valid if a library loaded later adds an overload.
struct INFINI_OPS_API OperatorEntry {
  std::list<Overload> overloads;

  // Slots that at least one overload has on this device, ascending.
  std::vector<int> ActiveSlots(Device::Type device) const;
  // Frees the data that implementations keep between calls: handles, plans, workspaces.
  void ClearCache() const;
};

// "abs(Tensor input, Tensor out)", for messages and documentation. The generator writes the text;
// for an overload that another library has added, there are only the names: "abs(input, out)".
INFINI_OPS_API std::string Signature(const Overload& overload);

// "0, 8", or "none": slots in a message.
INFINI_OPS_API std::string JoinSlots(const std::vector<int>& slots);

// All operators by public name.
INFINI_OPS_API const std::map<std::string, OperatorEntry, std::less<>>& Operators();

// Throws `std::invalid_argument` if no operator has this name.
INFINI_OPS_API const OperatorEntry& FindOperator(std::string_view name);
INFINI_OPS_API const Overload& FindOverload(std::string_view operator_name,
                                            std::string_view overload_name);

struct CallOptions {
  std::optional<int> implementation_index = std::nullopt;
  void* stream = nullptr;
};

// Selects by slot and device, and calls. The device is that of the first tensor argument that is
// not on the CPU, or the CPU if there is none. Throws the errors of the implementation.
INFINI_OPS_API void Dispatch(const Overload& overload, Span<Argument> arguments,
                             const CallOptions& options);

// True if `Dispatch` threw it because the arguments do not meet the implementation's requirements.
INFINI_OPS_API bool IsRefusal(const std::exception& error);

// The slot that `Dispatch` would run, without running it; empty if no implementation supports the
// call.
INFINI_OPS_API std::optional<int> FindSlot(const Overload& overload, Span<Argument> arguments,
                                           const CallOptions& options);

// The implementation that a call ran: an overload, a device and a slot.
struct Call {
  const Overload* overload = nullptr;
  Device::Type device = Device::Type::kCpu;
  int slot = 0;
};

// The last call on this thread that ran an implementation, whether it succeeded or threw. Has no
// overload before the first call. A call without an active implementation is not recorded.
INFINI_OPS_API const Call& LastCall();

// Base of the operator classes, both hand-written (`src/base/`) and generated. `Self` has `kName`,
// the public name of the operator.
template <typename Self>
class OperatorBase {
 public:
  static std::vector<int> ActiveImplementationIndices(Device::Type device) {
    return FindOperator(Self::kName).ActiveSlots(device);
  }
  static void ClearCache() { FindOperator(Self::kName).ClearCache(); }
};

// A hand-written implementation is a specialisation with a static `Run` that takes the overload's
// parameters. A `const Invocation&` before them gives access to the device and the stream. `Run` is
// called only with arguments that meet the operator's `kRequirements`. Optional members: `kLimits`,
// a static `Supports` with the overload's parameters, which returns true if `Run` can run here, and
// a static `ClearCache`. `INFINI_OPS_REGISTER` registers it.
template <typename Op, Device::Type device, int slot>
struct Operator;

// Adds a kernel to an overload. Creates the operator and the overload if the generated table does
// not contain them. Throws `std::logic_error` with operator, device and slot if the slot is already
// used.
INFINI_OPS_API void Register(const char* operator_name, const char* overload_name,
                             Span<Parameter> parameters, const Implementation& implementation);

namespace internal {

// Returns a reference if the argument contains the value: a copy of a tensor allocates.
template <typename T>
std::conditional_t<std::is_same_v<T, Tensor>, const Tensor&, T> Unpack(const Argument& argument) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return *argument.As<Tensor>();
  } else if constexpr (std::is_same_v<T, std::optional<Tensor>>) {
    if (argument.tag == Argument::Tag::kNone) return std::nullopt;
    return *argument.As<Tensor>();
  } else if constexpr (std::is_same_v<T, Span<Tensor>>) {
    return {argument.As<Tensor>(), argument.size};
  } else if constexpr (std::is_same_v<T, Scalar>) {
    return argument.scalar;
  } else {
    static_assert(std::is_arithmetic_v<T>, "extend Unpack for this parameter type");
    return argument.scalar.To<T>();
  }
}

// Converts a typed function to one over an argument array. The function may take the invocation
// before the overload's parameters.
template <auto function>
struct Unpacked {
  static void Run(const Invocation& invocation, const void*) { Call(invocation, function); }
  static bool Supports(const Invocation& invocation) { return Call(invocation, function); }

 private:
  template <typename Return, typename... Types>
  static Return Call(const Invocation& invocation, Return (*)(Types...)) {
    return Apply<Types...>(invocation, std::index_sequence_for<Types...>());
  }
  template <typename Return, typename... Types>
  static Return Call(const Invocation& invocation, Return (*)(const Invocation&, Types...)) {
    return Apply<Types...>(invocation, std::index_sequence_for<Types...>(), invocation);
  }
  template <typename... Types, std::size_t... index, typename... First>
  static auto Apply(const Invocation& invocation, std::index_sequence<index...>,
                    const First&... first) {
    return function(first..., Unpack<std::decay_t<Types>>(invocation.arguments[index])...);
  }
};

template <typename T, typename = void>
struct SupportsOf {
  static constexpr Predicate value = nullptr;
};
template <typename T>
struct SupportsOf<T, std::void_t<decltype(&T::Supports)>> {
  static constexpr Predicate value = &Unpacked<&T::Supports>::Supports;
};

template <typename T, typename = void>
struct ClearCacheOf {
  static constexpr void (*value)() = nullptr;
};
template <typename T>
struct ClearCacheOf<T, std::void_t<decltype(&T::ClearCache)>> {
  static constexpr void (*value)() = &T::ClearCache;
};

template <typename T, typename = void>
struct RequirementsOf {
  static constexpr const Requirements* value = nullptr;
};
template <typename T>
struct RequirementsOf<T, std::void_t<decltype(T::kRequirements)>> {
  static constexpr const Requirements* value = &T::kRequirements;
};

template <typename T, typename = void>
struct LimitsOf {
  static constexpr const Limits* value = nullptr;
};
template <typename T>
struct LimitsOf<T, std::void_t<decltype(T::kLimits)>> {
  static constexpr const Limits* value = &T::kLimits;
};

template <typename Op, Device::Type device, int slot>
struct Registration {
  static_assert(0 <= slot && slot < kSlotCount);
  using Implemented = Operator<Op, device, slot>;

  Registration() {
    Register(Op::kName, Op::kOverloadName, {Op::kParameters, std::size(Op::kParameters)},
             {device, slot, &Unpacked<&Implemented::Run>::Run, SupportsOf<Implemented>::value,
              ClearCacheOf<Implemented>::value, nullptr, RequirementsOf<Op>::value,
              LimitsOf<Implemented>::value});
  }
};

}  // namespace internal
}  // namespace infini::ops

// Use it at namespace scope of a source file: `INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0)`.
#define INFINI_OPS_REGISTER(Op, device, slot) \
  static const ::infini::ops::internal::Registration<Op, device, slot> k##Op##Registration##slot {}

#endif  // INFINI_OPS_OPERATOR_H_
