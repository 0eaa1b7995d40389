#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../cpu/calls.h"
#include "cuda_runtime.h"
#include "infini/ops/operator.h"

// Calls the CUDA implementations by the requests of tests/cuda/emulated.py on standard input, and
// answers on standard output.
namespace infini::ops {
namespace {

using calls::Read;

void WriteResults(const std::vector<calls::Buffer>& buffers) {
  const std::vector<emulator::Launch> launches = emulator::TakeLaunches();
  std::cout << "launches " << launches.size();
  for (const emulator::Launch& launch : launches) {
    std::cout << ' ' << launch.device << ' ' << reinterpret_cast<std::uintptr_t>(launch.stream);
  }
  std::cout << '\n';
  calls::WriteBuffers(buffers);
}

void Answer() {
  const auto name = Read<std::string>();
  const Device device(Device::Type::kNvidia, Read<int>());
  const auto stream = Read<std::uintptr_t>();
  emulator::SetOrder(Read<unsigned>());
  const std::vector<calls::Buffer> buffers = calls::ReadBuffers();
  const calls::Arguments arguments(buffers, device);
  try {
    emulator::TakeLaunches();
    Dispatch(FindOperator(name).overloads.front(), arguments.values(),
             {0, reinterpret_cast<void*>(stream)});
    int current = 0;
    cudaGetDevice(&current);
    if (current != 0) throw std::logic_error("the call has left another device the current one");
    WriteResults(buffers);
  } catch (const std::exception& error) {
    calls::WriteError(error.what());
  }
}

}  // namespace
}  // namespace infini::ops

int main() {
  while (true) infini::ops::Answer();
}
