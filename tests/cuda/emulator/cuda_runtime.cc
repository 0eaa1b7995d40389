#include "cuda_runtime.h"

#include <cstdlib>
#include <map>

namespace {

int current_device = 0;

struct Allocation {
  int device;
  std::size_t bytes;
};
std::map<const void*, Allocation> allocations;

}  // namespace

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  emulator::RecordRuntimeCall("cudaMalloc");
  *memory = std::malloc(bytes);
  allocations[*memory] = {current_device, bytes};
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  emulator::RecordRuntimeCall("cudaFree");
  allocations.erase(memory);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  emulator::RecordRuntimeCall("cudaSetDevice");
  if (device < 0 || device >= emulator::kDeviceCount) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
  }
  return "?";
}

const char* cudaGetErrorString(cudaError_t) { return "emulated"; }

namespace emulator {

bool HasMemory(int device, const void* memory, std::size_t bytes) {
  const auto found = allocations.find(memory);
  return found != allocations.end() && found->second.device == device &&
         found->second.bytes >= bytes;
}

cudaError_t RunHere(Launch launch, const std::function<void()>& kernel) {
  launch.device = current_device;
  return Run(launch, kernel) ? cudaSuccess : cudaErrorInvalidConfiguration;
}

}  // namespace emulator
