#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <mutex>

#include "memory.h"

namespace simulated {
namespace {

class Generator final : public c10::GeneratorImpl {
 public:
  Generator(c10::DeviceIndex device, at::Generator host)
      : GeneratorImpl({c10::kPrivateUse1, device},
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host_(std::move(host)) {}

  static c10::DeviceType device_type() { return c10::kPrivateUse1; }
  const at::Generator& host() const { return host_; }

  void set_current_seed(uint64_t seed) override { LockedHost()->set_current_seed(seed); }
  uint64_t current_seed() const override { return LockedHost()->current_seed(); }
  uint64_t seed() override { return LockedHost()->seed(); }
  void set_offset(uint64_t offset) override { LockedHost()->set_offset(offset); }
  uint64_t get_offset() const override { return LockedHost()->get_offset(); }
  void set_state(const c10::TensorImpl& state) override { LockedHost()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return LockedHost()->get_state();
  }

 private:
  struct Locked {
    c10::GeneratorImpl* generator;
    std::lock_guard<std::mutex> lock;
    c10::GeneratorImpl* operator->() const { return generator; }
  };

  // torch locks this generator; the kernels lock the one inside, the only one that they use.
  Locked LockedHost() const {
    c10::GeneratorImpl* const host = host_.unsafeGetGeneratorImpl();
    return {host, std::lock_guard<std::mutex>(host->mutex_)};
  }

  Generator* clone_impl() const override {
    return new Generator(device().index(), at::Generator(LockedHost()->clone()));
  }

  at::Generator host_;
};

c10::DeviceIndex CurrentDevice() {
  return c10::impl::getDeviceGuardImpl(c10::kPrivateUse1)->getDevice().index();
}

}  // namespace

at::Generator NewGenerator(c10::DeviceIndex device) {
  return at::make_generator<Generator>(device < 0 ? CurrentDevice() : device,
                                       at::detail::createCPUGenerator());
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static const auto* const generators =
      new std::array<at::Generator, kDeviceCount>{NewGenerator(0), NewGenerator(1)};
  return generators->at(device < 0 ? CurrentDevice() : device);
}

at::Generator HostGenerator(const std::optional<at::Generator>& generator) {
  return at::get_generator_or_default<Generator>(generator, DefaultGenerator(-1))->host();
}

}  // namespace simulated
