#include "base/add.h"

#include <cstdint>
#include <stdexcept>

#include "core/elements.h"
#include "core/requirements.h"
#include "triton/add.h"
#include "triton/launch.h"
#include "triton/operands.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonAddRequest;

constexpr int kMaxRank = 5;

bool HasKernels(DataType type) {
  if (IsUnsignedType(type)) return type == DataType::kUInt8;
  return IsRealType(type) && type != DataType::kFloat64;
}

Request MakeRequest(const Geometry<3>& geometry, DataType type, const Scalar& alpha) {
  Request request{};
  request.data_type = static_cast<int>(type);
  request.out = geometry.data[0];
  request.input = geometry.data[1];
  request.other = geometry.data[2];
  request.alpha = alpha.To<double>();
  request.integer_alpha = alpha.is_integral() ? alpha.To<std::int64_t>() : 0;
  request.count = geometry.count();
  std::int64_t* const sizes[] = {&request.size0, &request.size1, &request.size2, &request.size3};
  for (int i = 0; i < kMaxRank - 1; ++i) *sizes[i] = triton::SizeOf(geometry, i);
  std::int64_t* const strides[3][kMaxRank] = {
      {&request.out_stride0, &request.out_stride1, &request.out_stride2, &request.out_stride3,
       &request.out_stride4},
      {&request.input_stride0, &request.input_stride1, &request.input_stride2,
       &request.input_stride3, &request.input_stride4},
      {&request.other_stride0, &request.other_stride1, &request.other_stride2,
       &request.other_stride3, &request.other_stride4}};
  for (int operand = 0; operand < 3; ++operand) {
    for (int i = 0; i < kMaxRank; ++i) {
      *strides[operand][i] = triton::StrideOf(geometry, operand, i, type);
    }
  }
  return request;
}

}  // namespace

template <>
struct Operator<Add, Device::Type::kNvidia, 9> {
  static bool Supports(const Invocation& invocation, const Tensor& input, const Tensor& other,
                       const Scalar& alpha, const Tensor& out) {
    return TakesArguments(input, other, alpha, out) && triton::HasKernelsFor(invocation.device);
  }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Scalar& alpha, const Tensor& out) {
    if (!TakesArguments(input, other, alpha, out)) {
      throw std::invalid_argument(
          "add: slot 9 takes aligned strided tensors of one type (float16, bfloat16, float32, "
          "uint8 or a signed integer type), an alpha that the type can hold, and an out of the "
          "shape that they broadcast to; out must not overlap itself, or an input unless both are "
          "the same view; got " +
          Describe(input) + ", " + Describe(other) + " and out " + Describe(out));
    }
    if (out.element_count() == 0) return;
    ForEachPiece(MakeGeometry(out, input, other), kMaxRank, triton::kMaxOffset,
                 [&](const Geometry<3>& piece) {
                   triton::Launch("add", &InfiniOpsTritonAdd,
                                  MakeRequest(piece, out.data_type(), alpha), invocation);
                 });
  }

 private:
  static bool TakesArguments(const Tensor& input, const Tensor& other, const Scalar& alpha,
                             const Tensor& out) {
    return IsElementwise(out, {&input, &other}) && HasKernels(out.data_type()) &&
           IsFactor(alpha, out.data_type());
  }
};

INFINI_OPS_REGISTER(Add, Device::Type::kNvidia, 9);

}  // namespace infini::ops
