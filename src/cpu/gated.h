#ifndef INFINI_OPS_CPU_GATED_H_
#define INFINI_OPS_CPU_GATED_H_

#include "infini/ops/tensor.h"

namespace infini::ops::cpu {

enum class Activation { kSilu, kGelu, kGeluTanh };

// out = input * activation(gate), broadcast to the shape of `out`. Only kSilu takes float64.
void Gate(Activation activation, const Tensor& input, const Tensor& gate, const Tensor& out);

// out = activation(first) * second, of the halves of the input's last dimension.
void GateHalves(Activation activation, const Tensor& input, const Tensor& out);

}  // namespace infini::ops::cpu

#endif  // INFINI_OPS_CPU_GATED_H_
