#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>

namespace simulated {

constexpr c10::DeviceIndex kDeviceCount = 2;

// An address on a device is never accessible: whoever follows one outside a kernel crashes, in
// any thread, at any time. Kernels reach the memory behind it at another address.
//
// That needs no system call per kernel, as changing the protection of pages would, and protects
// while a kernel of another thread runs, as that could not.
void* Reach(void* device_address);

// Returns the device that an address lies on.
//
// Throws `c10::Error` if it lies on none.
c10::Device DeviceOf(const void* address);

struct MemoryUse {
  size_t allocated;
  size_t peak;
  size_t total;
};
MemoryUse MemoryUseOf(c10::DeviceIndex device);

// Memory on the current device.
c10::Allocator& DeviceAllocator();

// Memory of the host that a real device could copy from by itself. Here that is all memory, so
// what is pinned is merely remembered.
c10::Allocator& PinnedAllocator();
bool IsPinned(const void* address);

}  // namespace simulated
