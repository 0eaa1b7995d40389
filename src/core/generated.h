#ifndef INFINI_OPS_CORE_GENERATED_H_
#define INFINI_OPS_CORE_GENERATED_H_

#include "infini/ops/schema.h"

// The interface between the generated code and the library: `operator_table.cc` defines the table,
// and `torch/kernels.cc` the kernels of slot 8 in the same order. In a build without the PyTorch
// backend neither is compiled, and there is no table. `native_signatures.cc` is part of every
// build.
namespace infini::ops::generated {

struct Row {
  const char* operator_name;
  const char* overload_name;
  const Parameter* parameters;
  std::size_t parameter_count;
  const char* signature;  // "Tensor input, Tensor out"; operators share them
};

extern const Span<Row> kTable;

// The signature of a hand-written operator, which can be missing in the table.
struct NativeSignature {
  const char* operator_name;
  const char* overload_name;
  const char* text;
};

extern const Span<NativeSignature> kNativeSignatures;

// An ATen function of any type, and the function that calls it with converted arguments. Functions
// with the same signature share the latter: ATen's 1,440 functions have some 480 signatures.
struct TorchKernel {
  using Function = void (*)();

  void (*call)(Function function, const Argument* arguments);
  Function function;
};

extern const TorchKernel kTorchKernels[];

}  // namespace infini::ops::generated

#endif  // INFINI_OPS_CORE_GENERATED_H_
