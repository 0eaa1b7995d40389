#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "torch/foreign.h"
#include "torch/kernel.h"

namespace infini::ops::torch_backend {
namespace {

// The vendor's handle of the stream; nullptr if torch does not provide it.
template <typename Guard>
auto HandleOf(const Guard& guard, const c10::Stream& stream, int)
    -> decltype(guard.getStreamNativeHandle(stream)) {
  try {
    return guard.getStreamNativeHandle(stream);
  } catch (const c10::Error&) {
    return nullptr;  // an older plug-in without this method
  }
}

// Guards from before https://github.com/pytorch/pytorch/pull/171040 do not provide the handle.
// CUDA's stream class does, and the stream is its only member. The function is looked up in the
// loaded libraries, so that the library needs neither CUDA's headers nor linking against it.
template <typename Guard>
void* HandleOf(const Guard& guard, const c10::Stream& stream, long) {
  using Function = void* (*)(const c10::Stream*);
  static const auto function = [] {
    void* library = dlopen("libc10_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* symbol = library ? dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv") : nullptr;
    return reinterpret_cast<Function>(symbol);
  }();
  return guard.type() == c10::DeviceType::CUDA && function ? function(&stream) : nullptr;
}

const c10::impl::DeviceGuardImplInterface* GuardOf(c10::DeviceType type) {
  return c10::impl::hasDeviceGuardImpl(type) ? c10::impl::getDeviceGuardImpl(type) : nullptr;
}

}  // namespace

void* CurrentStream(Device device) {
  at::Device where = at::kCPU;
  try {
    where = ToDevice(device);
  } catch (const std::invalid_argument&) {
    return nullptr;  // torch has no streams of a device without its plug-in
  }
  const auto* guard = GuardOf(where.type());
  if (!guard) return nullptr;
  const c10::Stream stream = guard->getStream(where);
  if (stream == c10::Stream(c10::Stream::DEFAULT, stream.device())) return nullptr;
  if (void* handle = HandleOf(*guard, stream, 0)) return handle;
  throw std::runtime_error("this torch does not provide the current stream of " + where.str() +
                           " for a native kernel: pass its handle as `stream`, call on the "
                           "default stream, or pass implementation_index=8");
}

}  // namespace infini::ops::torch_backend
