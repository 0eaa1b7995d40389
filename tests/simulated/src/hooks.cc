// torch's interface to a device beside the kernels.

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "generator.h"
#include "memory.h"
#include "tensors.h"

namespace simulated {
namespace {

using c10::DeviceIndex;

const c10::impl::DeviceGuardImplInterface& TheGuard() {
  return *c10::impl::getDeviceGuardImpl(c10::kPrivateUse1);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }

  DeviceIndex deviceCount() const override { return kDeviceCount; }
  DeviceIndex getCurrentDevice() const override { return TheGuard().getDevice().index(); }
  void setCurrentDevice(DeviceIndex device) const override {
    TheGuard().setDevice({c10::kPrivateUse1, device});
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return TheGuard().exchangeDevice({c10::kPrivateUse1, device}).index();
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }

  at::Device getDeviceFromPtr(void* address) const override { return DeviceOf(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator(); }
  bool isPinnedPtr(const void* address) const override { return IsPinned(address); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    ResizeStorage(*storage.unsafeGetStorageImpl(), bytes);
  }

  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return DefaultGenerator(device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override { return NewGenerator(device); }
};

[[maybe_unused]] const bool registered = [] {
  c10::SetAllocator(c10::kPrivateUse1, &DeviceAllocator());
  at::setHostAllocator(c10::kPrivateUse1, &PinnedAllocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace simulated
