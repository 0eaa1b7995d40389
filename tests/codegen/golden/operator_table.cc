// Generated from the ATen schemas of torch TORCH. Do not edit.
#include <array>
#include <iterator>

#include "core/generated.h"

namespace infini::ops::generated {
namespace {

using P = Parameter;

constexpr auto kTensor = P::Type::kTensor;
constexpr auto kScalar = P::Type::kScalar;
constexpr auto kInt = P::Type::kInt;
constexpr auto kFloat = P::Type::kFloat;
constexpr auto kBool = P::Type::kBool;
constexpr auto kString = P::Type::kString;
constexpr auto kDataType = P::Type::kDataType;
constexpr auto kLayout = P::Type::kLayout;
constexpr auto kMemoryFormat = P::Type::kMemoryFormat;
constexpr auto kDevice = P::Type::kDevice;
constexpr auto kGenerator = P::Type::kGenerator;

// A default list, with the lifetime of the table.
template <std::int64_t... values>
constexpr std::array<std::int64_t, sizeof...(values)> kIntegers = {values...};

template <std::int64_t... values>
constexpr Span<std::int64_t> Integers() {
  return kIntegers<values...>;
}

constexpr Parameter kParameters[] = {
    // abs.out
    P(kTensor, "input"),
    P(kTensor, "out").Out(),
    // abs_
    P(kTensor, "input").Out(),
    // add.out
    P(kTensor, "input"),
    P(kTensor, "other"),
    P(kScalar, "alpha").Default(1),
    P(kTensor, "out").Out(),
    // add.Scalar_out
    P(kTensor, "input"),
    P(kScalar, "other"),
    P(kScalar, "alpha").Default(1),
    P(kTensor, "out").Out(),
    // cat.out
    P(kTensor, "tensors").List(),
    P(kInt, "dim").Default(0),
    P(kTensor, "out").Out(),
    // clamp.out
    P(kTensor, "input"),
    P(kScalar, "min").Optional().Default(std::nullopt),
    P(kScalar, "max").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // clamp.Tensor_out
    P(kTensor, "input"),
    P(kTensor, "min").Optional().Default(std::nullopt),
    P(kTensor, "max").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // index_put_
    P(kTensor, "input").Out(),
    P(kTensor, "indices").List().OptionalElements(),
    P(kTensor, "values"),
    P(kBool, "accumulate").Default(false),
    // _softmax.out
    P(kTensor, "input"),
    P(kInt, "dim"),
    P(kBool, "half_to_float"),
    P(kTensor, "out").Out(),
    // mean.dtype_out
    P(kTensor, "input"),
    P(kDataType, "dtype").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // mean.out
    P(kTensor, "input"),
    P(kInt, "dim").List(1).Optional(),
    P(kBool, "keepdim").Default(false),
    P(kDataType, "dtype").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // topk.values
    P(kTensor, "input"),
    P(kInt, "k"),
    P(kInt, "dim").Default(-1),
    P(kBool, "largest").Default(true),
    P(kBool, "sorted").Default(true),
    P(kTensor, "values").Out(),
    P(kTensor, "indices").Out(),
};

constexpr Row kRows[] = {
    {"abs", "out", kParameters + 0, 2},
    {"abs_inplace", "", kParameters + 2, 1},
    {"add", "out", kParameters + 3, 4},
    {"add", "Scalar_out", kParameters + 7, 4},
    {"cat", "out", kParameters + 11, 3},
    {"clamp", "out", kParameters + 14, 4},
    {"clamp", "Tensor_out", kParameters + 18, 4},
    {"index_put_inplace", "", kParameters + 22, 4},
    {"internal_softmax", "out", kParameters + 26, 4},
    {"mean", "dtype_out", kParameters + 30, 3},
    {"mean", "out", kParameters + 33, 5},
    {"topk", "values", kParameters + 38, 7},
};

}  // namespace

const Span<Row> kTable{kRows, std::size(kRows)};

}  // namespace infini::ops::generated
