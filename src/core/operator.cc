#include "infini/ops/operator.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "core/generated.h"
#include "infini/ops/slot_order.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "torch/foreign.h"
#endif

namespace infini::ops {
namespace {

using OperatorMap = std::map<std::string, OperatorEntry, std::less<>>;

void AddGeneratedOperators([[maybe_unused]] OperatorMap* operators) {
#ifdef INFINI_OPS_WITH_TORCH
  for (std::size_t i = 0; i < generated::kTable.size(); ++i) {
    const generated::Row& row = generated::kTable[i];
    Overload overload{row.operator_name,
                      row.overload_name,
                      {row.parameters, row.parameter_count},
                      row.signature,
                      {}};
    for (const DeviceTypeInfo& info : kDeviceTypes) {
      if (!IsEnabled(info.type)) continue;
      overload.implementations.push_back({info.type, static_cast<int>(Slot::kTorch),
                                          torch_backend::KernelOf(row.operator_name), nullptr,
                                          nullptr, &generated::kTorchKernels[i]});
    }
    (*operators)[row.operator_name].overloads.push_back(std::move(overload));
  }
#endif
}

// A function-local static, because registrations in other source files run in any order.
OperatorMap& MutableOperators() {
  static OperatorMap operators = [] {
    OperatorMap initial;
    AddGeneratedOperators(&initial);
    return initial;
  }();
  return operators;
}

std::string FullName(const Overload& overload) {
  std::string name = overload.operator_name;
  return *overload.name ? name + '.' + overload.name : name;
}

bool SameParameters(Span<Parameter> a, Span<Parameter> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Parameter& x, const Parameter& y) {
                      return std::string_view(x.name) == y.name && x.type == y.type &&
                             x.list_size == y.list_size && x.is_out == y.is_out;
                    });
}

const char* FindNativeSignature(std::string_view operator_name, std::string_view overload_name) {
  for (const generated::NativeSignature& native : generated::kNativeSignatures) {
    if (operator_name == native.operator_name && overload_name == native.overload_name) {
      return native.text;
    }
  }
  return nullptr;
}

Overload& FindOrAddOverload(const char* operator_name, const char* overload_name,
                            Span<Parameter> parameters) {
  std::list<Overload>& overloads = MutableOperators()[operator_name].overloads;
  for (Overload& overload : overloads) {
    if (std::string_view(overload.name) != overload_name) continue;
    if (!SameParameters(overload.parameters, parameters)) {
      throw std::logic_error("an implementation of '" + FullName(overload) +
                             "' has other parameters than the operator: got " +
                             Signature({operator_name, overload_name, parameters, nullptr, {}}) +
                             ", expected " + Signature(overload));
    }
    return overload;
  }
  return overloads.emplace_back(Overload{operator_name,
                                         overload_name,
                                         parameters,
                                         FindNativeSignature(operator_name, overload_name),
                                         {}});
}

std::vector<int> SlotsOn(const Overload& overload, Device::Type device) {
  std::vector<int> slots;
  for (const Implementation& implementation : overload.implementations) {
    if (implementation.device == device) slots.push_back(implementation.slot);
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

// The place of a slot in the order in which calls try the slots of a device.
int RankOf(std::string_view operator_name, const Implementation& implementation) {
  for (const SlotOrder& order : kSlotOrders) {
    if (order.operator_name != operator_name || order.device != implementation.device) continue;
    const int* end = order.slots + order.count;
    const int* place = std::find(order.slots, end, implementation.slot);
    if (place != end) return static_cast<int>(place - order.slots) - order.count;
  }
  return implementation.slot;
}

[[noreturn]] void ThrowNotActive(const Overload& overload, Device::Type device,
                                 std::optional<int> slot) {
  const std::string what = slot ? "implementation_index " + std::to_string(*slot) + " is not active"
                                : "nothing is active";
  throw std::invalid_argument(what + " for '" + FullName(overload) + "' on " +
                              std::string(Info(device).name) +
                              "; active: " + JoinSlots(SlotsOn(overload, device)));
}

}  // namespace

Selection Overload::Select(const Invocation& invocation, std::optional<int> slot) const {
  const Device::Type device = invocation.device.type();
  const Implementation* lowest = nullptr;
  for (const Implementation& implementation : implementations) {
    if (implementation.device != device) continue;
    if (slot == implementation.slot) return {implementation, false};
    if (!slot && implementation.Supports(invocation)) return {implementation, true};
    if (!lowest || implementation.slot < lowest->slot) lowest = &implementation;
  }
  // If none supports the call, use the lowest slot, whose error explains why.
  if (slot || !lowest) ThrowNotActive(*this, device, slot);
  return {*lowest, false};
}

std::vector<int> OperatorEntry::ActiveSlots(Device::Type device) const {
  std::set<int> slots;
  for (const Overload& overload : overloads) {
    for (int slot : SlotsOn(overload, device)) slots.insert(slot);
  }
  return {slots.begin(), slots.end()};
}

std::string Signature(const Overload& overload) {
  std::string parameters;
  if (overload.signature) {
    parameters = overload.signature;
  } else {
    for (const Parameter& parameter : overload.parameters) {
      parameters += (parameters.empty() ? "" : ", ") + std::string(parameter.name);
    }
  }
  return std::string(overload.operator_name) + '(' + parameters + ')';
}

std::string JoinSlots(const std::vector<int>& slots) {
  if (slots.empty()) return "none";
  std::string text;
  for (int slot : slots) text += (text.empty() ? "" : ", ") + std::to_string(slot);
  return text;
}

void OperatorEntry::ClearCache() const {
  for (const Overload& overload : overloads) {
    for (const Implementation& implementation : overload.implementations) {
      if (implementation.clear_cache) implementation.clear_cache();
    }
  }
}

const std::map<std::string, OperatorEntry, std::less<>>& Operators() { return MutableOperators(); }

const OperatorEntry& FindOperator(std::string_view name) {
  const auto found = Operators().find(name);
  if (found == Operators().end()) {
    throw std::invalid_argument("this build has no operator '" + std::string(name) + "'");
  }
  return found->second;
}

const Overload& FindOverload(std::string_view operator_name, std::string_view overload_name) {
  for (const Overload& overload : FindOperator(operator_name).overloads) {
    if (overload.name == overload_name) return overload;
  }
  throw std::invalid_argument("this build's operator '" + std::string(operator_name) +
                              "' has no overload '" + std::string(overload_name) + "'");
}

void Register(const char* operator_name, const char* overload_name, Span<Parameter> parameters,
              const Implementation& implementation) {
  if (!IsEnabled(implementation.device)) return;
  Overload& overload = FindOrAddOverload(operator_name, overload_name, parameters);
  auto& implementations = overload.implementations;
  const auto key = [&](const Implementation& i) {
    return std::pair(i.device, RankOf(operator_name, i));
  };
  const auto place = std::lower_bound(
      implementations.begin(), implementations.end(), implementation,
      [&](const Implementation& a, const Implementation& b) { return key(a) < key(b); });
  if (place != implementations.end() && key(*place) == key(implementation)) {
    throw std::logic_error("two implementations of '" + FullName(overload) + "' for " +
                           std::string(Info(implementation.device).name) + " at slot " +
                           std::to_string(implementation.slot));
  }
  implementations.insert(place, implementation);
}

}  // namespace infini::ops
