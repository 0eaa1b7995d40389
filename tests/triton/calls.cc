// Calls operators on memory that is declared as a device's, for tests through a C interface.

#include <infini/ops/operator.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace infini::ops;

extern "C" {

// As in recorded_calls.py.
struct Value {
  enum Kind : std::int32_t { kTensor, kInteger, kReal, kBool, kNone } kind;
  std::int32_t data_type, device;
  std::int32_t rank;
  std::int64_t integer;
  double real;
  void* data;
  std::int64_t shape[8], strides[8];
};

enum Outcome { kDone, kInvalidArgument, kRuntimeError };

}  // extern "C"

namespace {

// The arguments and the tensors that they point to.
struct Arguments {
  Arguments(const Value* values, std::size_t count) {
    tensors.reserve(count);
    for (const Value* value = values; value < values + count; ++value) Add(*value);
  }

  void Add(const Value& value) {
    switch (value.kind) {
      case Value::kTensor: {
        const auto rank = static_cast<std::size_t>(value.rank);
        const Device device(Device::Type::kNvidia, value.device);
        arguments.push_back(tensors.emplace_back(value.data, Span<std::int64_t>(value.shape, rank),
                                                 Span<std::int64_t>(value.strides, rank),
                                                 static_cast<DataType>(value.data_type), device));
        if (!main) main = device;
        return;
      }
      case Value::kInteger:
        return arguments.push_back(value.integer);
      case Value::kReal:
        return arguments.push_back(value.real);
      case Value::kBool:
        return arguments.push_back(value.integer != 0);
      case Value::kNone:
        return arguments.push_back(std::nullopt);
    }
  }

  std::vector<Tensor> tensors;
  std::vector<Argument> arguments;
  std::optional<Device> main;
};

}  // namespace

extern "C" {

int Call(const char* name, const Value* values, std::size_t count, void* stream, char* message,
         std::size_t size) {
  try {
    const Arguments arguments(values, count);
    Dispatch(FindOperator(name).overloads.front(), {arguments.arguments.data(), count},
             {9, stream});
    return kDone;
  } catch (const std::invalid_argument& error) {
    std::snprintf(message, size, "%s", error.what());
    return kInvalidArgument;
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return kRuntimeError;
  }
}

// Whether slot 9 takes the call.
int Supports(const char* name, const Value* values, std::size_t count) {
  const Arguments arguments(values, count);
  const Overload& overload = FindOperator(name).overloads.front();
  const Invocation invocation{arguments.arguments.data(), count, *arguments.main, nullptr,
                              overload.parameters};
  return overload.Select(invocation, 9).implementation.Supports(invocation);
}

}  // extern "C"
