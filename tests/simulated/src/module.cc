// Operators for the Python module of the device: torch turns their errors into Python's.

#include <torch/library.h>

#include "generator.h"
#include "memory.h"

namespace simulated {
namespace {

TORCH_LIBRARY(simulated_device, m) {
  m.def("device_count() -> int", []() -> int64_t { return kDeviceCount; });
  m.def("default_generator",
        [](int64_t device) { return DefaultGenerator(static_cast<c10::DeviceIndex>(device)); });
}

}  // namespace
}  // namespace simulated
