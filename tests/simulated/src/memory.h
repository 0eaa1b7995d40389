#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace simulated {

constexpr c10::DeviceIndex kDeviceCount = 2;

// An address on a device is never accessible: host code that dereferences one outside a kernel
// crashes, in any thread, at any time. Kernels use another address of the same memory.
//
// Compared with changing the protection of pages, this needs no system call per kernel, and also
// protects while a kernel of another thread runs.
void* Reach(void* device_address);

// Returns the device that an address lies on.
//
// Throws `c10::Error` if it lies on none.
c10::Device DeviceOf(const void* address);

// Memory on the current device.
c10::Allocator& DeviceAllocator();

// Memory of the host that a real device could copy from by itself. Here that is all memory, so
// pinned blocks are only recorded.
at::HostAllocator& PinnedAllocator();
bool IsPinned(const void* address);

}  // namespace simulated
