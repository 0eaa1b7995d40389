#ifndef EMULATOR_H_
#define EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

// Runs CUDA kernels on host memory: the blocks one after another, and in each one fiber per thread,
// which runs until it waits for others. A mistake that makes a GPU hang or give a wrong result, as
// a thread that never reaches a barrier, is an error here that names the thread and the place.
namespace emulator {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

struct Launch {
  const void* kernel = nullptr;
  Index grid, block;
  std::size_t shared_bytes = 0;
  const void* stream = nullptr;
  int device = 0;  // the current one
};

// A mistake of a kernel that a GPU may not detect.
struct Misuse : std::logic_error {
  using logic_error::logic_error;
};

inline constexpr int kDeviceCount = 2;
inline constexpr int kWarpSize = 32;

// The order of the blocks, and of a block's threads between two barriers: ascending with seed 0,
// else random, which reveals kernels that depend on the order.
void SetOrder(unsigned seed);

// Records a launch that does not go through `Run`.
void Record(const Launch& launch);

// Every launch since the last call of `TakeLaunches`.
std::vector<Launch> TakeLaunches();

// The same for calls of the runtime, by name, except for launches and cudaGetDevice, which is
// cheap.
void RecordRuntimeCall(const char* name);
std::vector<std::string> TakeRuntimeCalls();

// False if a GPU would refuse the configuration. Throws `Misuse`.
bool Run(const Launch& launch, const std::function<void()>& kernel);

// Dynamic shared memory that a kernel may have: 48 KiB unless raised, as by cudaFuncSetAttribute.
bool SetSharedLimit(const void* kernel, std::size_t bytes);

// The running block's dynamic shared memory.
void* DynamicShared();

// Where a thread waits.
struct Place {
  const char* what = "";
  const char* file = "";
  int line = 0;
};

// Waits for all threads of the block.
void WaitForBlock(const Place& place);

// Waits for the lanes of `mask`, of which the calling thread is one; returns what `source` of them
// gave as `value`.
std::uint64_t Exchange(const Place& place, unsigned mask, std::uint64_t value, unsigned source);
unsigned Lane();

}  // namespace emulator

#endif  // EMULATOR_H_
