#ifndef INFINI_OPS_OPERATOR_H_
#define INFINI_OPS_OPERATOR_H_

#include <functional>
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
#include "infini/ops/schema.h"
#include "infini/ops/slot.h"

namespace infini::ops {

// One call, ready to run: the arguments in schema order, outs last.
struct Invocation {
  const Argument* arguments = nullptr;
  std::size_t size = 0;
  Device device;
  // The vendor's handle of the stream to run on: the caller's, or else what is torch's current one;
  // nullptr for the default stream.
  void* stream = nullptr;
  Span<Parameter> parameters = {};  // one per argument
};

// `data` is what the implementation was registered with.
using Kernel = void (*)(const Invocation& invocation, const void* data);
// Whether a kernel takes these arguments; nullptr takes all that fit the schema.
using Predicate = bool (*)(const Invocation& invocation);

// What fills one (overload, device, slot).
struct Implementation {
  Device::Type device;
  int slot;
  Kernel kernel;
  Predicate supports = nullptr;
  void (*clear_cache)() = nullptr;  // nullptr: keeps nothing between calls
  const void* data = nullptr;       // handed to `kernel`

  void Run(const Invocation& invocation) const { kernel(invocation, data); }
};

// One schema of an operator and what implements it, lowest slot first.
struct INFINI_OPS_API Overload {
  const char* operator_name;
  const char* name;  // ATen's overload name, "" or "out" for instance
  Span<Parameter> parameters;
  std::vector<Implementation> implementations;

  // The implementation at `slot`, or without one the lowest that supports the call; where none
  // does, the lowest. Throws `std::invalid_argument` that lists the active slots.
  const Implementation& Select(const Invocation& invocation, std::optional<int> slot) const;
};

// An operator by its public name: overloads in the order in which they are tried. A list,
// so that whoever holds an overload keeps it when a library loaded later adds another.
struct INFINI_OPS_API OperatorEntry {
  std::list<Overload> overloads;

  // Slots that at least one overload has on this device, ascending.
  std::vector<int> ActiveSlots(Device::Type device) const;
  // Drops what implementations keep between calls: handles, plans, workspaces.
  void ClearCache() const;
};

// "0, 8", or "none": slots in a message.
INFINI_OPS_API std::string JoinSlots(const std::vector<int>& slots);

// All operators by public name.
INFINI_OPS_API const std::map<std::string, OperatorEntry, std::less<>>& Operators();

// Throws `std::invalid_argument` for a name that no operator has.
INFINI_OPS_API const OperatorEntry& FindOperator(std::string_view name);
INFINI_OPS_API const Overload& FindOverload(std::string_view operator_name,
                                            std::string_view overload_name);

struct CallOptions {
  std::optional<int> implementation_index = std::nullopt;
  void* stream = nullptr;
};

// Selects by slot and by the device of the first tensor argument that is not on the CPU (the CPU
// without one), and calls. Throws what the implementation throws.
INFINI_OPS_API void Dispatch(const Overload& overload, Span<Argument> arguments,
                             const CallOptions& options);

// What a call ran: an overload's implementation at one slot for one device.
struct Call {
  const Overload* overload = nullptr;
  Device::Type device = Device::Type::kCpu;
  int slot = 0;
};

// What the last call on this thread ran, whether it succeeded or threw; without an overload where
// none has come so far. A call that finds no implementation runs none.
INFINI_OPS_API const Call& LastCall();

// Base of the operator classes, hand-written (`src/base/`) and generated alike. `Self` has
// `kName`, the public name of the operator.
template <typename Self>
class OperatorBase {
 public:
  static std::vector<int> ActiveImplementationIndices(Device::Type device) {
    return FindOperator(Self::kName).ActiveSlots(device);
  }
  static void ClearCache() { FindOperator(Self::kName).ClearCache(); }
};

// A hand-written implementation is a specialisation with a static `Run` that takes the
// overload's parameters, after a `const Invocation&` if it needs the device or the stream;
// optionally a static `Supports` that takes the overload's parameters and says whether `Run` can
// do it, and a static `ClearCache`. `INFINI_OPS_REGISTER` makes it known.
template <typename Op, Device::Type device, int slot>
struct Operator;

// Adds a kernel to an overload, creating operator and overload where the generated table has
// none. Throws `std::logic_error` naming the place when it is taken.
INFINI_OPS_API void Register(const char* operator_name, const char* overload_name,
                             Span<Parameter> parameters, const Implementation& implementation);

namespace internal {

// By reference where the argument has it: a copy of a tensor allocates.
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

// Turns a typed function, which may take the invocation before the overload's parameters, into one
// over an argument array.
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

template <typename Op, Device::Type device, int slot>
struct Registration {
  static_assert(0 <= slot && slot < kSlotCount);
  using Implemented = Operator<Op, device, slot>;

  Registration() {
    Register(Op::kName, Op::kOverloadName, {Op::kParameters, std::size(Op::kParameters)},
             {device, slot, &Unpacked<&Implemented::Run>::Run, SupportsOf<Implemented>::value,
              ClearCacheOf<Implemented>::value});
  }
};

}  // namespace internal
}  // namespace infini::ops

// At namespace scope of a source file: `INFINI_OPS_REGISTER(Add, Device::Type::kCpu, 0)`.
#define INFINI_OPS_REGISTER(Op, device, slot) \
  static const ::infini::ops::internal::Registration<Op, device, slot> k##Op##Registration##slot {}

#endif  // INFINI_OPS_OPERATOR_H_
