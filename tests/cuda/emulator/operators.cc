#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "infini/ops/operator.h"

// Calls the CUDA implementations by the requests of tests/cuda/emulated.py on standard input, which
// defines their format, and answers on standard output. Each buffer is an allocation of exactly its
// size, so that AddressSanitizer reports every access beside it.
namespace infini::ops {
namespace {

template <typename T>
T Read() {
  T value;
  if (!(std::cin >> value)) std::exit(0);
  return value;
}

// Aligned as by cudaMalloc.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : size_(size) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, size) != 0) throw std::bad_alloc();
    data_.reset(static_cast<char*>(memory));
  }
  char* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> data_;
  std::size_t size_;
};

std::vector<Buffer> ReadBuffers() {
  const auto count = Read<std::size_t>();
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < count; ++i) buffers.emplace_back(Read<std::size_t>());
  std::cin.get();
  for (Buffer& buffer : buffers) std::cin.read(buffer.data(), buffer.size());
  return buffers;
}

std::vector<std::int64_t> ReadIntegers(std::size_t count) {
  std::vector<std::int64_t> values(count);
  for (std::int64_t& value : values) value = Read<std::int64_t>();
  return values;
}

Tensor ReadTensor(std::vector<Buffer>& buffers, Device device) {
  Buffer& buffer = buffers[Read<std::size_t>()];
  char* data = buffer.data() + Read<std::size_t>();
  const auto type = ParseDataType(Read<std::string>());
  const auto rank = Read<std::size_t>();
  const auto shape = ReadIntegers(rank);
  return {data, shape, ReadIntegers(rank), type.value(), device};
}

// The arguments of a call and the tensors that they point to.
struct Arguments {
  std::vector<std::unique_ptr<std::vector<Tensor>>> tensors;
  std::vector<Argument> values;
};

Argument ReadArgument(std::vector<Buffer>& buffers, Device device, Arguments& arguments) {
  const auto kind = Read<std::string>();
  if (kind == "none") return {};
  if (kind == "bool") return Read<bool>();
  if (kind == "int") return Read<std::int64_t>();
  if (kind == "float") return std::strtod(Read<std::string>().c_str(), nullptr);
  const auto count = kind == "tensors" ? Read<std::size_t>() : 1;
  auto& tensors = *arguments.tensors.emplace_back(std::make_unique<std::vector<Tensor>>());
  for (std::size_t i = 0; i < count; ++i) tensors.push_back(ReadTensor(buffers, device));
  return kind == "tensors" ? Argument(Span<Tensor>(tensors)) : Argument(tensors[0]);
}

void WriteError(const std::string& message) {
  std::cout << "error " << message.size() << '\n' << message << std::flush;
}

void WriteResults(const std::vector<Buffer>& buffers) {
  const std::vector<emulator::Launch> launches = emulator::TakeLaunches();
  std::cout << "launches " << launches.size();
  for (const emulator::Launch& launch : launches) {
    std::cout << ' ' << launch.device << ' ' << reinterpret_cast<std::uintptr_t>(launch.stream);
  }
  std::cout << '\n';
  for (const Buffer& buffer : buffers) std::cout.write(buffer.data(), buffer.size());
  std::cout << std::flush;
}

void Answer() {
  const auto name = Read<std::string>();
  const Device device(Device::Type::kNvidia, Read<int>());
  const auto stream = Read<std::uintptr_t>();
  emulator::SetOrder(Read<unsigned>());
  std::vector<Buffer> buffers = ReadBuffers();
  Arguments arguments;
  const auto count = Read<std::size_t>();
  for (std::size_t i = 0; i < count; ++i) {
    arguments.values.push_back(ReadArgument(buffers, device, arguments));
  }
  try {
    emulator::TakeLaunches();
    Dispatch(FindOperator(name).overloads.front(), arguments.values,
             {0, reinterpret_cast<void*>(stream)});
    int current = 0;
    cudaGetDevice(&current);
    if (current != 0) throw std::logic_error("the call has left another device the current one");
    WriteResults(buffers);
  } catch (const std::exception& error) {
    WriteError(error.what());
  }
}

}  // namespace
}  // namespace infini::ops

int main() {
  while (true) infini::ops::Answer();
}
