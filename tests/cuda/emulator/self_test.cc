#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "cublas_v2.h"
#include "cuda_runtime.h"

// Right and wrong kernels; the argument names one of them. Shows that the emulator runs the right
// ones and reports the mistakes of the others.
namespace {

constexpr int kBlock = 96;
float values[1000];
float results[8];

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments... arguments) {
  void* pointers[] = {&arguments...};
  std::puts(cudaGetErrorName(
      cudaLaunchKernel(kernel, grid, block, pointers, shared_bytes, cudaStream_t())));
}

__device__ float WarpSum(float value) {
  for (int delta = 1; delta < warpSize; delta *= 2) value += __shfl_xor_sync(~0u, value, delta);
  return value;
}

// results[b] = the sum of values[b], values[b + gridDim.x], ...
__global__ void Sum(const float* input, int count, float* sums, bool has_barrier) {
  __shared__ float partial[kBlock / warpSize];
  float sum = 0;
  for (int i = blockIdx.x + gridDim.x * threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    sum += input[i];
  }
  sum = WarpSum(sum);
  if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = sum;
  if (has_barrier) __syncthreads();
  sum = 0;
  for (float part : partial) sum += part;
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

void PrintSums(bool has_barrier) {
  std::iota(values, values + 1000, 0);
  Launch(&Sum, 4, kBlock, 0, static_cast<const float*>(values), 1000, +results, has_barrier);
  std::printf("%g %g %g %g\n", results[0], results[1], results[2], results[3]);
}

__global__ void ShiftDown(float* lanes) {
  lanes[threadIdx.x] = __shfl_down_sync(~0u, 1.0f * threadIdx.x, 1);
}

__global__ void LeaveBeforeBarrier() {
  if (threadIdx.x == 63) return;
  __syncthreads();
}

__global__ void ShuffleHalfAWarp() {
  if (threadIdx.x % warpSize < 16) {
    __shfl_xor_sync(~0u, 1.0f, 1);
  } else {
    __syncthreads();
  }
}

__global__ void ReadALaneThatLeft() {
  if (threadIdx.x % 2 == 0) __shfl_xor_sync(~0u, 1.0f, 1);
}

__global__ void WriteAt(float* data, int index) { data[index] = 1; }

__global__ void WriteSharedAt(int index) {
  __shared__ float data[4];
  data[index] = 1;
  results[0] = data[0];
}

void Nothing() {}

// The matrix of the columns (0, 1), (2, 3) and (4, 5) times its transpose.
void Multiply(int leading) {
  std::iota(values, values + 6, 0);
  const float one = 1, zero = 0;
  cublasHandle_t handle;
  cublasCreate(&handle);
  std::puts(cublasGetStatusString(cublasGemmEx(
      handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 3, &one, values, CUDA_R_32F, leading, values,
      CUDA_R_32F, 2, &zero, results, CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT)));
  std::printf("%g %g %g %g\n", results[0], results[1], results[2], results[3]);
  cublasDestroy(handle);
}

const std::map<std::string, std::function<void()>> kCases = {
    {"sum", [] { PrintSums(true); }},
    {"no_barrier", [] { PrintSums(false); }},
    {"shift",
     [] {
       Launch(&ShiftDown, 1, 32, 0, +values);
       std::printf("%g %g %g\n", values[0], values[30], values[31]);
     }},
    {"leave_before_barrier", [] { Launch(&LeaveBeforeBarrier, 1, 64, 0); }},
    {"shuffle_half_a_warp", [] { Launch(&ShuffleHalfAWarp, {1, 2}, 64, 0); }},
    {"read_a_lane_that_left", [] { Launch(&ReadALaneThatLeft, 1, 32, 0); }},
    {"beyond_array", [] { Launch(&WriteAt, 1, 1, 0, +results, 8); }},
    {"beyond_shared", [] { Launch(&WriteSharedAt, 1, 1, 0, 4); }},
    {"product", [] { Multiply(2); }},
    {"small_leading", [] { Multiply(1); }},
    {"no_block", [] { Launch(&Nothing, 0, 1, 0); }},
    {"large_block", [] { Launch(&Nothing, 1, {32, 33}, 0); }},
    {"high_grid", [] { Launch(&Nothing, {1, 65536}, 1, 0); }},
    {"much_shared", [] { Launch(&Nothing, 1, 1, (48 << 10) + 1); }},
    {"raised_shared",
     [] {
       cudaFuncSetAttribute(&Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10);
       Launch(&Nothing, 1, 1, 64 << 10);
     }},
};

}  // namespace

int main(int argc, char** argv) {
  emulator::SetOrder(argc > 2 ? std::stoi(argv[2]) : 0);
  try {
    kCases.at(argv[1])();
  } catch (const emulator::Misuse& misuse) {
    std::puts(misuse.what());
  }
}
