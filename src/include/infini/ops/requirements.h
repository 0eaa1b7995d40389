#ifndef INFINI_OPS_REQUIREMENTS_H_
#define INFINI_OPS_REQUIREMENTS_H_

#include <cstdint>

#include "infini/ops/data_type.h"

// What the hand-written implementations of an operator take, as data. An operator states it once,
// as `kRequirements` in src/base. An implementation adds what it does not take, as `kLimits`. The
// check of a call, the message of a refusal and the documentation derive from both.
namespace infini::ops {

struct Invocation;

// A set of element types, and its name in "tensors of one <name>".
struct DataTypes {
  template <typename... Types>
  static constexpr std::uint64_t Bits(Types... types) {
    return ((std::uint64_t{1} << static_cast<int>(types)) | ...);
  }
  constexpr bool Has(DataType type) const { return bits >> static_cast<int>(type) & 1; }

  std::uint64_t bits;
  const char* name;
  std::uint32_t float32 = 0;  // `Places` of tensors that can be float32 beside 16-bit ones
};

// Places among the parameters of an operator, as bits.
template <typename... Index>
constexpr std::uint32_t Places(Index... index) {
  return ((std::uint32_t{1} << index) | ...);
}

inline constexpr DataTypes kFloatTypes{DataTypes::Bits(DataType::kFloat16, DataType::kBFloat16,
                                                       DataType::kFloat32, DataType::kFloat64),
                                       "type (float16, bfloat16, float32 or float64)"};
inline constexpr DataTypes kSmallFloatTypes{
    DataTypes::Bits(DataType::kFloat16, DataType::kBFloat16, DataType::kFloat32),
    "type (float16, bfloat16 or float32)"};
inline constexpr DataTypes kIndexTypes{DataTypes::Bits(DataType::kInt32, DataType::kInt64),
                                       "type (int32 or int64)"};
inline constexpr DataTypes kUnsignedTypes{
    DataTypes::Bits(DataType::kUInt8, DataType::kUInt16, DataType::kUInt32, DataType::kUInt64),
    "unsigned integer type"};
inline constexpr DataTypes kIntegerTypes{
    kUnsignedTypes.bits |
        DataTypes::Bits(DataType::kInt8, DataType::kInt16, DataType::kInt32, DataType::kInt64),
    "integer type"};
inline constexpr DataTypes kRealTypes{kFloatTypes.bits | kIntegerTypes.bits, "real type"};
// Types that can be copied, even if no arithmetic is implemented for them.
inline constexpr DataTypes kStoredTypes{kRealTypes.bits | DataTypes::Bits(DataType::kBool),
                                        "bool or real type"};

inline constexpr DataTypes kFloat32Type{DataTypes::Bits(DataType::kFloat32), "type float32"};
inline constexpr DataTypes kInt32Type{DataTypes::Bits(DataType::kInt32), "type int32"};
inline constexpr DataTypes kInt8Type{DataTypes::Bits(DataType::kInt8), "type int8"};
inline constexpr DataTypes kQuantizedTypes{
    DataTypes::Bits(DataType::kInt8, DataType::kFloat8E4M3FN), "type (int8 or float8_e4m3fn)"};
inline constexpr DataTypes kFloat8Type{DataTypes::Bits(DataType::kFloat8E4M3FN),
                                       "type float8_e4m3fn"};

// Tensors that have types of their own, by their places.
struct TypedTensors {
  std::uint32_t places = 0;
  DataTypes types = {0, nullptr};
};

// Whether all tensors have the same type, or each its own.
enum class Typing : std::uint8_t { kOne, kAny };

// How often an element of an input is read. All tensors are aligned. What is written overlaps
// neither itself nor another tensor. An operator that reads once can also write into the view that
// it reads.
enum class Reading : std::uint8_t { kOnce, kOften };

// What else is checked, of all arguments. `out` is the tensor that is written first.
enum class Condition : std::uint8_t {
  kNone,
  kFactors,        // torch accepts the scalars as factors for the type
  kElementwise,    // `out` has the shape that the inputs broadcast to. Torch resizes another `out`
  kBroadcast,      // the input broadcasts to the shape of `out`
  kConcatenation,  // `out` has the shape of the tensors concatenated along a dimension
  kCausalRows,     // matrices with no more rows than columns
  kRows,           // an out of the input's shape, which has a dimension
  kNorm,           // a weight for each element of the last dimension
  kAddNorm,        // the same, with a residual of the input's shape
  kHalves,         // `out` has the shape of the input with half of its last dimension
  kPagedCache,     // tokens, their slots and caches, as base/reshape_and_cache.h
  kFlashCache,     // the same, as base/reshape_and_cache_flash.h
  kTensorScale,    // one scale of a tensor, see core/quantization.h
  kTokenScale,     // a scale of each row
  kGroupScale,     // a scale of each group in a row
  kScaledProduct,  // a scaled product of quantized matrices
  kRotary,         // shapes of rotated heads, see core/rotary.h
  kGemm,           // shapes of products, see core/product.h
  kLinear,
  kMatmul,
  kAttention,  // see core/attention.h
  kVarlenAttention,
  kCachedAttention,
  kSampling,    // logits, numbers for each row and tokens
  kTopkGating,  // see core/experts.h
  kGroupedTopk,
  kBlockAlignment,
  kExpertSum,
  kGroupedGemm,
};

struct Requirement {
  Condition condition = Condition::kNone;
  const char* text = nullptr;  // what the operator takes, in a sentence
};

struct Requirements {
  DataTypes types;
  Typing typing;
  Reading reading;
  Requirement others[2];
  std::uint32_t indices = 0;  // `Places` of tensors of `kIndexTypes`
  std::uint32_t masks = 0;    // `Places` of tensors that can also be bool
  TypedTensors typed[3] = {};
};

// What one implementation does not take, of what its operator takes.
struct Limits {
  DataTypes types;
  bool (*hold)(const Invocation& call) = nullptr;
  const char* text = nullptr;  // "no dimension exceeds 2^30 elements"
};

}  // namespace infini::ops

#endif  // INFINI_OPS_REQUIREMENTS_H_
