#include "base/add.h"

#include <cstdint>

#include "triton/add.h"
#include "triton/launch.h"
#include "triton/operands.h"

namespace infini::ops {
namespace {

using Request = InfiniOpsTritonAddRequest;

constexpr int kMaxRank = 5;

constexpr DataTypes kTypes{(kIntegerTypes.bits & ~kUnsignedTypes.bits) |
                               DataTypes::Bits(DataType::kUInt8) | kSmallFloatTypes.bits,
                           "type (float16, bfloat16, float32, uint8 or a signed integer type)"};

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
  static constexpr Limits kLimits{kTypes};

  static bool Supports(const Invocation& call) { return triton::HasKernelsFor(call.device); }

  static void Run(const Invocation& invocation, const Tensor& input, const Tensor& other,
                  const Scalar& alpha, const Tensor& out) {
    if (out.element_count() == 0) return;
    ForEachPiece(MakeGeometry(out, input, other), kMaxRank, triton::kMaxOffset,
                 [&](const Geometry<3>& piece) {
                   triton::Launch("add", &InfiniOpsTritonAdd,
                                  MakeRequest(piece, out.data_type(), alpha), invocation);
                 });
  }
};

INFINI_OPS_REGISTER(Add, Device::Type::kNvidia, 9);

}  // namespace infini::ops
