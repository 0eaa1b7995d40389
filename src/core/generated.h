#ifndef INFINI_OPS_CORE_GENERATED_H_
#define INFINI_OPS_CORE_GENERATED_H_

#include "infini/ops/operator.h"

// What the generator hands to the library: `operator_table.cc` defines the table, and
// `torch/kernels.cc` the kernels of slot 8 in the same order. Without the PyTorch backend
// neither is compiled and the table is absent.
namespace infini::ops::generated {

struct Row {
  const char* operator_name;
  const char* overload_name;
  const Parameter* parameters;
  std::size_t parameter_count;
};

extern const Span<Row> kTable;

// An ATen function of any type, and what calls it with converted arguments: one function for all
// that share a signature, since ATen's 1,440 have some 480 signatures.
struct TorchKernel {
  using Function = void (*)();

  void (*call)(Function function, const Argument* arguments);
  Function function;
};

extern const TorchKernel kTorchKernels[];

}  // namespace infini::ops::generated

#endif  // INFINI_OPS_CORE_GENERATED_H_
