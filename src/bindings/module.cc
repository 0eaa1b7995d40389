#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings/operator_function.h"
#include "infini/ops/operator.h"

#ifdef INFINI_OPS_WITH_TORCH
#include "bindings/torch_objects.h"
#endif

namespace nb = nanobind;

namespace infini::ops::bindings {
namespace {

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : Operators()) names.push_back(name);
  return names;
}

// For one of `Operators()`; empty for a platform that the library was not built for.
std::vector<int> ActiveImplementationIndices(std::string_view name, std::string_view device) {
  const OperatorEntry& entry = FindOperator(name);
  bool is_known = false;
  std::string known;
  std::string enabled;
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    if (device == info.name || device == info.torch_device) {
      if (IsEnabled(info.type)) return entry.ActiveSlots(info.type);
      is_known = true;
    }
    known += (known.empty() ? "" : ", ") + std::string(info.name);
    if (IsEnabled(info.type)) enabled += (enabled.empty() ? "" : ", ") + std::string(info.name);
  }
  if (is_known) return {};
  throw std::invalid_argument("unknown device '" + std::string(device) + "'; expected one of " +
                              known +
                              ", or torch's name of its device; this build has: " + enabled);
}

void ClearCache(std::string_view name) { FindOperator(name).ClearCache(); }

// Operator, overload, device and slot; `None` before the first call on this thread.
nb::object LastCallAsTuple() {
  const Call& call = LastCall();
  if (!call.overload) return nb::none();
  return nb::make_tuple(call.overload->operator_name, call.overload->name, Info(call.device).name,
                        call.slot);
}

std::vector<std::string> Devices() {
  std::vector<std::string> names;
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    if (IsEnabled(info.type)) names.emplace_back(info.name);
  }
  return names;
}

// Name, torch's device type, and the torch plug-in that registers the type, or `None`.
nb::list Platforms() {
  nb::list platforms;
  for (const DeviceTypeInfo& info : kDeviceTypes) {
    const nb::object plugin = info.torch_plugin.empty() ? nb::none() : nb::cast(info.torch_plugin);
    platforms.append(nb::make_tuple(info.name, info.torch_device, plugin));
  }
  return platforms;
}

}  // namespace

NB_MODULE(_core, module) {
  InitializeOperatorFunction(module);
  module.def("operator_names", &OperatorNames);
  module.def("operator_function", &MakeOperatorFunction);
  module.def("active_implementation_indices", &ActiveImplementationIndices);
  module.def("clear_cache", &ClearCache);
  module.def("devices", &Devices);
  module.def("platforms", &Platforms);
  module.def("last_call", &LastCallAsTuple);
#ifdef INFINI_OPS_WITH_TORCH
  InitializeTorchObjects();
#endif
}

}  // namespace infini::ops::bindings
