#ifndef EMULATED_CUDA_RUNTIME_H_
#define EMULATED_CUDA_RUNTIME_H_

#include <math.h>  // not cmath: sqrt, exp and so on for float are in the global namespace

#include <cstddef>
#include <cstring>
#include <utility>

#include "emulator.h"

// The part of the vendor's header of this name that src/cuda uses. There is no <<<>>> and nothing
// that synchronizes, which a CUDA graph would not capture.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("emulated_shared")))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = emulator::kWarpSize;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorInvalidDevice = 101,
};
using cudaStream_t = struct CUstream_st*;

inline const auto cudaStreamPerThread = reinterpret_cast<cudaStream_t>(2);

cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  emulator::RecordRuntimeCall("cudaThreadExchangeStreamCaptureMode");
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int value) {
  emulator::RecordRuntimeCall("cudaFuncSetAttribute");
  return emulator::SetSharedLimit(reinterpret_cast<const void*>(kernel), value)
             ? cudaSuccess
             : cudaErrorInvalidValue;
}

namespace emulator {

// True for memory of cudaMalloc on the device, of at least so many bytes.
bool HasMemory(int device, const void* memory, std::size_t bytes);

cudaError_t RunHere(Launch launch, const std::function<void()>& kernel);

template <typename... Parameters, std::size_t... index>
void Call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<index...>) {
  kernel(*static_cast<std::remove_const_t<Parameters>*>(arguments[index])...);
}

}  // namespace emulator

template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes = 0, cudaStream_t stream = nullptr) {
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "some of the vendors' GPUs take no more");
  return emulator::RunHere(
      {reinterpret_cast<const void*>(kernel),
       {grid.x, grid.y, grid.z},
       {block.x, block.y, block.z},
       shared_bytes,
       stream},
      [&] { emulator::Call(kernel, arguments, std::index_sequence_for<Parameters...>()); });
}

#define EMULATED_PLACE(name) {name, file, line}
#define EMULATED_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMULATED_CALLER) {
  emulator::WaitForBlock(EMULATED_PLACE("__syncthreads"));
}

inline void __syncwarp(unsigned mask = ~0u, EMULATED_CALLER) {
  emulator::Exchange(EMULATED_PLACE("__syncwarp"), mask, 0, emulator::Lane());
}

namespace emulator {

template <typename T>
T Shuffle(const Place& place, unsigned mask, const T& value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = Exchange(place, mask, bits, source);
  T result;
  std::memcpy(&result, &bits, sizeof(T));
  return result;
}

}  // namespace emulator

// As in CUDA, a lane sees only its group of `width` lanes; an index past these means itself.
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize, EMULATED_CALLER) {
  const unsigned lane = emulator::Lane(), source = lane ^ lane_mask;
  return emulator::Shuffle(EMULATED_PLACE("__shfl_xor_sync"), mask, value,
                           source / width <= lane / width ? source : lane);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize, EMULATED_CALLER) {
  const unsigned lane = emulator::Lane(), source = lane + delta;
  return emulator::Shuffle(EMULATED_PLACE("__shfl_down_sync"), mask, value,
                           source / width == lane / width ? source : lane);
}

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}

// No other thread runs in between.
inline int atomicAdd(int* address, int value) {
  const int old = *address;
  *address += value;
  return old;
}
inline int atomicMax(int* address, int value) {
  const int old = *address;
  if (old < value) *address = value;
  return old;
}

inline float rsqrtf(float value) { return 1 / sqrt(value); }
inline double rsqrt(double value) { return 1 / sqrt(value); }
inline float __expf(float value) { return exp(value); }
inline float __fdividef(float a, float b) { return a / b; }

#endif  // EMULATED_CUDA_RUNTIME_H_
