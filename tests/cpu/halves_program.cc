// Converts what it reads to or from 16-bit or 8-bit floats, or adds 16-bit ones, for
// test_halves.py:
//
//   program scalar|vector widen|narrow|add float16|bfloat16|float8_e4m3fn MOST
//
// Vectors are those of the instruction set that INFINI_OPS_CPU_ISA allows. MOST is the number of
// elements that are converted at a time; 0 is a whole vector. For sums, the first half of the input
// is added to the second one.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cpu/kernels.h"

#define INFINI_OPS_KERNELS "halves_kernels.h"
#include "cpu/for_each_isa.h"

namespace {

using infini::ops::cpu::BFloat16;
using infini::ops::cpu::Float16;
using infini::ops::cpu::Float8;

template <typename T>
void RunScalar(const std::string& operation, const char* from, char* to, std::int64_t count) {
  const T* const halves = reinterpret_cast<const T*>(from);
  T* const results = reinterpret_cast<T*>(to);
  for (std::int64_t i = 0; i < count; ++i) {
    if (operation == "widen") {
      reinterpret_cast<float*>(to)[i] = static_cast<float>(halves[i]);
    } else if constexpr (std::is_same_v<T, Float8>) {
      std::exit(2);  // only vectors convert to it
    } else if (operation == "narrow") {
      results[i] = static_cast<T>(reinterpret_cast<const float*>(from)[i]);
    } else {
      results[i] =
          static_cast<T>(static_cast<float>(halves[i]) + static_cast<float>(halves[count + i]));
    }
  }
}

template <typename T>
void RunVector(const std::string& operation, const char* from, char* to, std::int64_t count,
               std::int64_t most) {
  if (operation == "widen") {
    INFINI_OPS_KERNEL(ConvertInParts<T, float>)(from, to, count, most);
  } else if (operation == "narrow") {
    INFINI_OPS_KERNEL(ConvertInParts<float, T>)(from, to, count, most);
  } else if constexpr (!std::is_same_v<T, Float8>) {
    INFINI_OPS_KERNEL(AddPairs<T>)(from, to, count);
  }
}

template <typename T>
std::vector<char> Run(bool is_scalar, const std::string& operation, const std::vector<char>& input,
                      std::int64_t most) {
  const auto bytes = static_cast<std::int64_t>(input.size());
  constexpr auto element = static_cast<std::int64_t>(sizeof(T));
  const bool widens = operation == "widen";
  const std::int64_t count = bytes / (widens ? element : operation == "add" ? 2 * element : 4);
  const std::size_t size = static_cast<std::size_t>(count * (widens ? 4 : element));
  // A part of a vector ends before the margin.
  constexpr std::size_t margin = 64;
  std::vector<char> result(size + margin, 77);
  if (is_scalar) {
    RunScalar<T>(operation, input.data(), result.data(), count);
  } else {
    RunVector<T>(operation, input.data(), result.data(), count, most);
  }
  if (std::count(result.end() - margin, result.end(), 77) != margin) std::exit(1);
  result.resize(size);
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  std::vector<char> input;
  char buffer[1 << 16];
  for (std::size_t size; (size = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0;) {
    input.insert(input.end(), buffer, buffer + size);
  }
  const bool is_scalar = arguments[1] == std::string("scalar");
  const std::string type = arguments[3];
  const auto run = type == "float16"    ? &Run<Float16>
                   : type == "bfloat16" ? &Run<BFloat16>
                                        : &Run<Float8>;
  const std::vector<char> result = run(is_scalar, arguments[2], input, std::atoi(arguments[4]));
  std::fwrite(result.data(), 1, result.size(), stdout);
}
