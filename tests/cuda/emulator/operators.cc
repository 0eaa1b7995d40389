#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../../cpu/calls.h"
#include "core/generated.h"
#include "cuda_runtime.h"
#include "infini/ops/operator.h"

// Calls the CUDA implementations by the requests of tests/cuda/emulated.py on standard input, and
// answers on standard output.
namespace infini::ops {

// No message of this program shows a signature.
const Span<generated::NativeSignature> generated::kNativeSignatures{};

namespace {

using calls::Read;

void WriteResults(const std::vector<calls::Buffer>& buffers) {
  const std::vector<emulator::Launch> launches = emulator::TakeLaunches();
  std::cout << "launches " << launches.size();
  for (const emulator::Launch& launch : launches) {
    std::cout << ' ' << launch.device << ' ' << reinterpret_cast<std::uintptr_t>(launch.stream);
  }
  for (const std::string& name : emulator::TakeRuntimeCalls()) std::cout << ' ' << name;
  std::cout << '\n';
  calls::WriteBuffers(buffers);
}

// In place of Triton's implementations, which the emulator cannot run. Like them, they do not
// take float64.
void RegisterSlot9() {
  for (const char* name : {"add", "causal_softmax", "gemm", "rms_norm", "swiglu"}) {
    const Overload& overload = FindOperator(name).overloads.front();
    const auto run = [](const Invocation&, const void*) { throw std::runtime_error("ran slot 9"); };
    const auto supports = [](const Invocation& invocation) {
      const Argument& out = invocation.arguments[invocation.size - 1];
      return out.As<Tensor>()->data_type() != DataType::kFloat64;
    };
    Register(name, overload.name, overload.parameters, {Device::Type::kNvidia, 9, run, supports});
  }
}

void Answer() {
  const auto name = Read<std::string>();
  const Device device(Device::Type::kNvidia, Read<int>());
  const auto stream = Read<std::uintptr_t>();
  emulator::SetOrder(Read<unsigned>());
  const auto slot = Read<int>();
  const std::vector<calls::Buffer> buffers = calls::ReadBuffers();
  const calls::Arguments arguments(buffers, device);
  try {
    emulator::TakeLaunches();
    emulator::TakeRuntimeCalls();
    Dispatch(FindOperator(name).overloads.front(), arguments.values(),
             {slot < 0 ? std::nullopt : std::optional(slot), reinterpret_cast<void*>(stream)});
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
  infini::ops::RegisterSlot9();
  while (true) infini::ops::Answer();
}
