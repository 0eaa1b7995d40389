// Queries and calls the library for NVIDIA on a machine without a GPU.
#include <iostream>

#include "base/add.h"
#include "infini/ops/tensor.h"

namespace ops = infini::ops;

int main() {
  constexpr auto kDevice = ops::Device::Type::kNvidia;
  for (const char* name : {"add", "cast", "cat", "mul", "swiglu"}) {
    std::cout << name << ": " << ops::JoinSlots(ops::FindOperator(name).ActiveSlots(kDevice))
              << '\n';
  }
  float values[4] = {};
  float results[4] = {};
  const ops::Tensor input(values, {4}, ops::DataType::kFloat32, kDevice);
  const ops::Tensor integers(values, {4}, ops::DataType::kInt32, kDevice);
  const ops::Tensor out(results, {4}, ops::DataType::kFloat32, kDevice);
  try {
    ops::Add::Call(input, input, out);
  } catch (const std::runtime_error& error) {
    std::cout << "failed: " << error.what() << '\n';
  }
  try {
    ops::Add::Call(input, integers, out);
  } catch (const std::invalid_argument& error) {
    std::cout << "refused: " << error.what() << '\n';
  }
}
