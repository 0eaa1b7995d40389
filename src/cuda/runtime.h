#ifndef INFINI_OPS_CUDA_RUNTIME_H_
#define INFINI_OPS_CUDA_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "infini/ops/operator.h"
// Every vendor has one file vendor/*/vendor.h; the build's include path contains one of them. It
// includes the headers and defines the prefix of the runtime's names with the macro
// INFINI_OPS_RUNTIME, the 16-bit types Float16 and BFloat16, and LaneMask. All vendors here use
// CUDA's names with their own prefix.
#include "vendor.h"

// The parts of the vendor's runtime that the kernels' sources use.
namespace infini::ops::cuda {

inline constexpr Device::Type kDevice = Device::Type::INFINI_OPS_ACCELERATOR;

using Stream = INFINI_OPS_RUNTIME(Stream_t);
using Error = INFINI_OPS_RUNTIME(Error_t);

// For shuffles, which also get kWarpSize as their width: a vendor's warp can be twice as wide.
inline constexpr int kWarpSize = 32;
inline constexpr LaneMask kAllLanes = ~LaneMask{0};

// Throws `std::runtime_error` with the name of the call if it failed.
inline void Check(Error error, const char* call) {
  if (error == INFINI_OPS_RUNTIME(Success)) return;
  std::string message = std::string(call) + " failed with " +
                        INFINI_OPS_RUNTIME(GetErrorName)(error) + ": " +
                        INFINI_OPS_RUNTIME(GetErrorString)(error);
  if (error == INFINI_OPS_RUNTIME(ErrorInsufficientDriver)) {
    message += ", or there is no driver; install a driver as new as the runtime";
  }
  throw std::runtime_error(message);
}

// INFINI_OPS_CALL(SetDevice, 0) calls cudaSetDevice(0), or the vendor's equivalent, and checks it.
#define INFINI_OPS_CALL(name, ...)                                  \
  ::infini::ops::cuda::Check(INFINI_OPS_RUNTIME(name)(__VA_ARGS__), \
                             INFINI_OPS_QUOTED(INFINI_OPS_RUNTIME(name)))
#define INFINI_OPS_QUOTED(name) INFINI_OPS_QUOTED_AS_IS(name)
#define INFINI_OPS_QUOTED_AS_IS(name) #name

// Makes a device the thread's current one, for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(Device device) {
    INFINI_OPS_CALL(GetDevice, &previous_);
    if (device.index() == previous_) return;
    INFINI_OPS_CALL(SetDevice, device.index());
    changed_ = true;
  }
  ~DeviceGuard() {
    // A destructor can't throw; the next call reports the error again.
    if (changed_) static_cast<void>(INFINI_OPS_RUNTIME(SetDevice)(previous_));
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool changed_ = false;
};

// The stream on which the call must run.
inline Stream CurrentStream(const Invocation& invocation) {
  return static_cast<Stream>(invocation.stream);
}

// Disables template argument deduction for a parameter, so that arguments are converted.
template <typename T>
struct Identity {
  using Type = T;
};

// Replaces `kernel<<<grid, block, shared_bytes, stream>>>(arguments...)`, which only CUDA compilers
// support.
template <typename... Parameters>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Stream stream, typename Identity<Parameters>::Type... arguments) {
  void* pointers[] = {&arguments...};
  INFINI_OPS_CALL(LaunchKernel, kernel, grid, block, pointers, shared_bytes, stream);
}

}  // namespace infini::ops::cuda

#endif  // INFINI_OPS_CUDA_RUNTIME_H_
