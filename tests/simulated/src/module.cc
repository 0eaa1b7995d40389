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
  // Bytes: allocated now, allocated at most, and in total.
  m.def("memory_use(int device) -> (int, int, int)", [](int64_t device) {
    const MemoryUse use = MemoryUseOf(static_cast<c10::DeviceIndex>(device));
    return std::make_tuple(static_cast<int64_t>(use.allocated), static_cast<int64_t>(use.peak),
                           static_cast<int64_t>(use.total));
  });
}

}  // namespace
}  // namespace simulated
