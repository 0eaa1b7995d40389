#ifndef INFINI_OPS_TESTS_CPU_CALLS_H_
#define INFINI_OPS_TESTS_CPU_CALLS_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "infini/ops/operator.h"

// Reads calls of operators from standard input, and writes the memory of their tensors to standard
// output, for programs that tests drive: words, and the bytes of buffers after a line of words.
namespace infini::ops::calls {

// Ends the program at the end of the input.
template <typename T>
T Read() {
  T value;
  if (!(std::cin >> value)) std::exit(0);
  return value;
}

// An allocation of exactly its size, so that AddressSanitizer reports every access beside it.
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

// Their number, their sizes, a new line, and their bytes.
inline std::vector<Buffer> ReadBuffers() {
  const auto count = Read<std::size_t>();
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < count; ++i) buffers.emplace_back(Read<std::size_t>());
  std::cin.get();
  for (Buffer& buffer : buffers) std::cin.read(buffer.data(), buffer.size());
  return buffers;
}

inline std::vector<std::int64_t> ReadIntegers(std::size_t count) {
  std::vector<std::int64_t> values(count);
  for (std::int64_t& value : values) value = Read<std::int64_t>();
  return values;
}

// The number of a buffer, the offset in bytes, the type, the rank, the shape and the strides.
inline Tensor ReadTensor(const std::vector<Buffer>& buffers, Device device) {
  const Buffer& buffer = buffers[Read<std::size_t>()];
  char* data = buffer.data() + Read<std::size_t>();
  const auto type = ParseDataType(Read<std::string>());
  const auto rank = Read<std::size_t>();
  const auto shape = ReadIntegers(rank);
  return {data, shape, ReadIntegers(rank), type.value(), device};
}

// The arguments of a call and the tensors that they point to.
class Arguments {
 public:
  // Their number, and each with its kind.
  Arguments(const std::vector<Buffer>& buffers, Device device) {
    const auto count = Read<std::size_t>();
    for (std::size_t i = 0; i < count; ++i) values_.push_back(ReadArgument(buffers, device));
  }
  const std::vector<Argument>& values() const { return values_; }

 private:
  Argument ReadArgument(const std::vector<Buffer>& buffers, Device device) {
    const auto kind = Read<std::string>();
    if (kind == "none") return {};
    if (kind == "bool") return Read<bool>();
    if (kind == "int") return Read<std::int64_t>();
    if (kind == "float") return std::strtod(Read<std::string>().c_str(), nullptr);
    const auto count = kind == "tensors" ? Read<std::size_t>() : 1;
    auto& tensors = *tensors_.emplace_back(std::make_unique<std::vector<Tensor>>());
    for (std::size_t i = 0; i < count; ++i) tensors.push_back(ReadTensor(buffers, device));
    return kind == "tensors" ? Argument(Span<Tensor>(tensors)) : Argument(tensors[0]);
  }

  std::vector<std::unique_ptr<std::vector<Tensor>>> tensors_;
  std::vector<Argument> values_;
};

inline void WriteError(const std::string& message) {
  std::cout << "error " << message.size() << '\n' << message << std::flush;
}

inline void WriteBuffers(const std::vector<Buffer>& buffers) {
  for (const Buffer& buffer : buffers) std::cout.write(buffer.data(), buffer.size());
  std::cout << std::flush;
}

}  // namespace infini::ops::calls

#endif  // INFINI_OPS_TESTS_CPU_CALLS_H_
