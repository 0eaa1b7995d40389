#ifndef INFINI_OPS_CORE_HALVES_H_
#define INFINI_OPS_CORE_HALVES_H_

#include <cstdint>

#include "infini/ops/tensor.h"

namespace infini::ops {

// The halves of a tensor's last dimension as views, each of the shape of `out`.
struct Halves {
  Halves(const Tensor& input, const Tensor& out)
      : first(input.data(), out.shape(), input.strides(), input.data_type(), input.device()),
        second(Middle(input, out), out.shape(), input.strides(), input.data_type(),
               input.device()) {}

  Tensor first;
  Tensor second;

 private:
  static char* Middle(const Tensor& input, const Tensor& out) {
    const std::size_t last = out.dimensions() - 1;
    const auto size = static_cast<std::int64_t>(DataTypeSize(input.data_type()));
    return input.data<char>() + out.shape()[last] * input.strides()[last] * size;
  }
};

}  // namespace infini::ops

#endif  // INFINI_OPS_CORE_HALVES_H_
