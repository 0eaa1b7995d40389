#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "calls.h"
#include "infini/ops/operator.h"

// Calls slot 0 of the CPU by the requests of tests/cpu/calls.py on standard input, and answers on
// standard output.
namespace infini::ops {
namespace {

void Answer() {
  const auto name = calls::Read<std::string>();
  const std::vector<calls::Buffer> buffers = calls::ReadBuffers();
  const calls::Arguments arguments(buffers, {});
  try {
    Dispatch(FindOperator(name).overloads.front(), arguments.values(), {0});
    std::cout << "ran 0\n";
    calls::WriteBuffers(buffers);
  } catch (const std::exception& error) {
    calls::WriteError(error.what());
  }
}

}  // namespace
}  // namespace infini::ops

int main() {
  std::ios::sync_with_stdio(false);  // it reads single characters, which are slow under an emulator
  while (true) infini::ops::Answer();
}
