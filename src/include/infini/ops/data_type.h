#ifndef INFINI_OPS_DATA_TYPE_H_
#define INFINI_OPS_DATA_TYPE_H_

#include <cstddef>
#include <cstdint>

namespace infini::ops {

// Element types. The values are those of `c10::ScalarType`, which torch keeps stable
// because it serialises them; `src/torch/kernel.cc` asserts it. So a conversion between
// the two is a cast, and a torch newer than this list can pass types unknown here.
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
  kBFloat16 = 15,
  kFloat8E5M2 = 23,
  kFloat8E4M3FN = 24,
  kFloat8E5M2FNUZ = 25,
  kFloat8E4M3FNUZ = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
};

// "float32" and so on; "unknown" for a value that is not listed above.
const char* DataTypeName(DataType data_type);

// Bytes per element; 0 for a value that is not listed above.
std::size_t DataTypeSize(DataType data_type);

}  // namespace infini::ops

#endif  // INFINI_OPS_DATA_TYPE_H_
