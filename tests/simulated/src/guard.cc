// torch's interface to set the current device and stream, and to record events.
//
// All work is done when a kernel returns, so nothing ever waits. The current device and stream are
// stored for each thread, as on a real device, so that tests can detect a wrong one.

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>

#include "memory.h"

namespace simulated {
namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

thread_local DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDeviceCount> current_streams{};  // 0: the default stream
std::atomic<c10::StreamId> last_stream{0};

Device Checked(Device device) {
  TORCH_CHECK(device.type() == c10::kPrivateUse1, "not a simulated device: ", device);
  const DeviceIndex index = device.has_index() ? device.index() : current_device;
  TORCH_CHECK(index >= 0 && index < kDeviceCount, "invalid device ordinal ",
              static_cast<int>(index), "; there are ", static_cast<int>(kDeviceCount),
              " simulated devices");
  return {c10::kPrivateUse1, index};
}

using Time = std::chrono::steady_clock::time_point;  // the only content of an event

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kPrivateUse1; }
  DeviceIndex deviceCount() const noexcept override { return kDeviceCount; }

  Device getDevice() const override { return {c10::kPrivateUse1, current_device}; }
  void setDevice(Device device) const override { current_device = Checked(device).index(); }
  void uncheckedSetDevice(Device device) const noexcept override {
    if (device.has_index()) current_device = device.index();
  }
  Device exchangeDevice(Device device) const override {
    const Device previous = getDevice();
    setDevice(device);
    return previous;
  }

  Stream getStream(Device device) const override {
    const Device checked = Checked(device);
    return Stream(Stream::UNSAFE, checked, current_streams[checked.index()]);
  }
  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::DEFAULT, Checked(device));
  }
  Stream getNewStream(Device device, int /*priority*/) const override {
    return Stream(Stream::UNSAFE, Checked(device), ++last_stream);
  }
  Stream getStreamFromGlobalPool(Device device, bool /*is_high_priority*/) const override {
    return getNewStream(device, 0);
  }
  Stream exchangeStream(Stream stream) const override {
    const Stream previous = getStream(stream.device());
    current_streams[previous.device_index()] = stream.id();
    return previous;
  }
  // Not part of the interface of an older torch.
  void* getStreamNativeHandle(const Stream stream) const {
    return reinterpret_cast<void*>(stream.id());
  }
  bool queryStream(const Stream& /*stream*/) const override { return true; }
  void synchronizeStream(const Stream& /*stream*/) const override {}
  void synchronizeDevice(DeviceIndex /*device*/) const override {}

  void record(void** event, const Stream& /*stream*/, DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (!*event) *event = new Time;
    *static_cast<Time*>(*event) = std::chrono::steady_clock::now();
  }
  void block(void* /*event*/, const Stream& /*stream*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override {}
  void destroyEvent(void* event, DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Time*>(event);
  }
  double elapsedTime(void* first, void* second, DeviceIndex /*device*/) const override {
    TORCH_CHECK(first && second, "both events must be recorded before the time between them");
    const auto elapsed = *static_cast<Time*>(second) - *static_cast<Time*>(first);
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
}  // namespace simulated
