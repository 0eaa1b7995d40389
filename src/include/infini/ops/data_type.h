#ifndef INFINI_OPS_DATA_TYPE_H_
#define INFINI_OPS_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "infini/ops/export.h"

namespace infini::ops {

// Element types: all types of torch 2.14. An element of a type with less than a byte, or with
// several values, takes a whole byte. The values are those of `c10::ScalarType`, which torch keeps
// stable because it serialises them; `src/torch/kernel.cc` asserts this. A conversion between the
// two is therefore a cast, and a newer torch can pass types that are not listed here.
enum class DataType : std::int8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplex32 = 8,
  kComplex64 = 9,
  kComplex128 = 10,
  kBool = 11,
  kQInt8 = 12,
  kQUInt8 = 13,
  kQInt32 = 14,
  kBFloat16 = 15,
  kQUInt4x2 = 16,
  kQUInt2x4 = 17,
  kBits1x8 = 18,
  kBits2x4 = 19,
  kBits4x2 = 20,
  kBits8 = 21,
  kBits16 = 22,
  kFloat8E5M2 = 23,
  kFloat8E4M3FN = 24,
  kFloat8E5M2FNUZ = 25,
  kFloat8E4M3FNUZ = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
  kUInt1 = 30,
  kUInt2 = 31,
  kUInt3 = 32,
  kUInt4 = 33,
  kUInt5 = 34,
  kUInt6 = 35,
  kUInt7 = 36,
  kInt1 = 37,
  kInt2 = 38,
  kInt3 = 39,
  kInt4 = 40,
  kInt5 = 41,
  kInt6 = 42,
  kInt7 = 43,
  kFloat8E8M0FNU = 44,
  kFloat4E2M1FNX2 = 45,
  kBComplex32 = 46,
};

// "float32" and so on; "unknown" for a value that is not listed above.
INFINI_OPS_API const char* DataTypeName(DataType data_type);

// The type with this name; nothing if there is none.
INFINI_OPS_API std::optional<DataType> ParseDataType(std::string_view name);

// Bytes per element; 0 for a value that is not listed above.
INFINI_OPS_API std::size_t DataTypeSize(DataType data_type);

}  // namespace infini::ops

#endif  // INFINI_OPS_DATA_TYPE_H_
