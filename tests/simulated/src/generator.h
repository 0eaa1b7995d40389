#pragma once

#include <ATen/core/Generator.h>

namespace simulated {

// A generator of random numbers that says it is the device's and is the CPU's inside.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);

// Returns the generator of the CPU inside a generator of the device, or inside the default one of
// the current device.
at::Generator HostGenerator(const std::optional<at::Generator>& generator);

}  // namespace simulated
