// Generated from the ATen schemas of torch TORCH. Do not edit.
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
    // bmm.out
    P(kTensor, "input"),
    P(kTensor, "mat2"),
    P(kTensor, "out").Out(),
    // bmm.dtype_out
    P(kTensor, "input"),
    P(kTensor, "mat2"),
    P(kDataType, "out_dtype"),
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
    // clone.out
    P(kTensor, "input"),
    P(kMemoryFormat, "memory_format").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // fft_fft2.out
    P(kTensor, "input"),
    P(kInt, "s").List(1).Optional().Default(std::nullopt),
    P(kInt, "dim").List(1).Default(Integers<-2, -1>()),
    P(kString, "norm").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // gelu_
    P(kTensor, "input").Out(),
    P(kString, "approximate").Default(std::string_view("none")),
    // index_put_
    P(kTensor, "input").Out(),
    P(kTensor, "indices").List().OptionalElements(),
    P(kTensor, "values"),
    P(kBool, "accumulate").Default(false),
    // _foreach_add.Scalar_out
    P(kTensor, "input").List(),
    P(kScalar, "scalar"),
    P(kTensor, "out").List().Out(),
    // _foreach_add.List_out
    P(kTensor, "input").List(),
    P(kTensor, "other").List(),
    P(kScalar, "alpha").Default(1),
    P(kTensor, "out").List().Out(),
    // _foreach_add.ScalarList_out
    P(kTensor, "input").List(),
    P(kScalar, "scalars").List(),
    P(kTensor, "out").List().Out(),
    // _foreach_add.Tensor_out
    P(kTensor, "input").List(),
    P(kTensor, "other"),
    P(kScalar, "alpha").Default(1),
    P(kTensor, "out").List().Out(),
    // _nested_tensor_from_tensor_list.out
    P(kTensor, "list").List(),
    P(kDataType, "dtype").Optional().Default(std::nullopt),
    P(kLayout, "layout").Optional().Default(std::nullopt),
    P(kDevice, "device").Optional().Default(std::nullopt),
    P(kBool, "pin_memory").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // _softmax.out
    P(kTensor, "input"),
    P(kInt, "dim"),
    P(kBool, "half_to_float"),
    P(kTensor, "out").Out(),
    // linear_backward.out
    P(kTensor, "input"),
    P(kTensor, "grad_output"),
    P(kTensor, "weight"),
    P(kBool, "output_mask").List(3),
    P(kTensor, "out0").Out(),
    P(kTensor, "out1").Out(),
    P(kTensor, "out2").Out(),
    // mean.dtype_out
    P(kTensor, "input"),
    P(kDataType, "dtype").Optional().KeywordOnly().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // mean.out
    P(kTensor, "input"),
    P(kInt, "dim").List(1).Optional(),
    P(kBool, "keepdim").Default(false),
    P(kDataType, "dtype").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // normal.Tensor_float_out
    P(kTensor, "mean"),
    P(kFloat, "std").Default(1.0),
    P(kGenerator, "generator").Optional().KeywordOnly().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // normal.float_Tensor_out
    P(kFloat, "mean"),
    P(kTensor, "std"),
    P(kGenerator, "generator").Optional().KeywordOnly().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // normal.Tensor_Tensor_out
    P(kTensor, "mean"),
    P(kTensor, "std"),
    P(kGenerator, "generator").Optional().KeywordOnly().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // normal.float_float_out
    P(kFloat, "mean"),
    P(kFloat, "std"),
    P(kInt, "size").List(),
    P(kGenerator, "generator").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // normal.out
    P(kTensor, "input"),
    P(kFloat, "mean").Default(0.0),
    P(kFloat, "std").Default(1.0),
    P(kGenerator, "generator").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // random_.from
    P(kTensor, "input").Out(),
    P(kInt, "from_"),
    P(kInt, "to").Optional(),
    P(kGenerator, "generator").Optional().Default(std::nullopt),
    // random_.to
    P(kTensor, "input").Out(),
    P(kInt, "to"),
    P(kGenerator, "generator").Optional().KeywordOnly().Default(std::nullopt),
    // random_
    P(kTensor, "input").Out(),
    P(kGenerator, "generator").Optional().KeywordOnly().Default(std::nullopt),
    // topk.values
    P(kTensor, "input"),
    P(kInt, "k"),
    P(kInt, "dim").Default(-1),
    P(kBool, "largest").Default(true),
    P(kBool, "sorted").Default(true),
    P(kTensor, "values").Out(),
    P(kTensor, "indices").Out(),
    // upsample_nearest2d.out
    P(kTensor, "input"),
    P(kInt, "output_size").List(2),
    P(kFloat, "scales_h").Optional().Default(std::nullopt),
    P(kFloat, "scales_w").Optional().Default(std::nullopt),
    P(kTensor, "out").Out(),
    // upsample_nearest2d.vec_out
    P(kTensor, "input"),
    P(kInt, "output_size").List().Optional(),
    P(kFloat, "scale_factors").List().Optional(),
    P(kTensor, "out").Out(),
};

constexpr Row kRows[] = {
    {"abs", "out", kParameters + 0, 2, "Tensor input, Tensor out"},
    {"abs_inplace", "", kParameters + 2, 1, "Tensor input"},
    {"add", "out", kParameters + 3, 4, "Tensor input, Tensor other, Scalar alpha=1, Tensor out"},
    {"add", "Scalar_out", kParameters + 7, 4, "Tensor input, Scalar other, Scalar alpha=1, Tensor out"},
    {"bmm", "out", kParameters + 11, 3, "Tensor input, Tensor mat2, Tensor out"},
    {"bmm", "dtype_out", kParameters + 14, 4, "Tensor input, Tensor mat2, DataType out_dtype, Tensor out"},
    {"cat", "out", kParameters + 18, 3, "Tensor[] tensors, int dim=0, Tensor out"},
    {"clamp", "out", kParameters + 21, 4, "Tensor input, Scalar? min=None, Scalar? max=None, Tensor out"},
    {"clamp", "Tensor_out", kParameters + 25, 4, "Tensor input, Tensor? min=None, Tensor? max=None, Tensor out"},
    {"clone", "out", kParameters + 29, 3, "Tensor input, MemoryFormat? memory_format=None, Tensor out"},
    {"fft_fft2", "out", kParameters + 32, 5, "Tensor input, int[1]? s=None, int[1] dim=[-2, -1], str? norm=None, Tensor out"},
    {"gelu_inplace", "", kParameters + 37, 2, "Tensor input, str approximate='none'"},
    {"index_put_inplace", "", kParameters + 39, 4, "Tensor input, Tensor?[] indices, Tensor values, bool accumulate=False"},
    {"internal_foreach_add", "Scalar_out", kParameters + 43, 3, "Tensor[] input, Scalar scalar, Tensor[] out"},
    {"internal_foreach_add", "List_out", kParameters + 46, 4, "Tensor[] input, Tensor[] other, Scalar alpha=1, Tensor[] out"},
    {"internal_foreach_add", "ScalarList_out", kParameters + 50, 3, "Tensor[] input, Scalar[] scalars, Tensor[] out"},
    {"internal_foreach_add", "Tensor_out", kParameters + 53, 4, "Tensor[] input, Tensor other, Scalar alpha=1, Tensor[] out"},
    {"internal_nested_tensor_from_tensor_list", "out", kParameters + 57, 6, "Tensor[] list, DataType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, Tensor out"},
    {"internal_softmax", "out", kParameters + 63, 4, "Tensor input, int dim, bool half_to_float, Tensor out"},
    {"linear_backward", "out", kParameters + 67, 7, "Tensor input, Tensor grad_output, Tensor weight, bool[3] output_mask, Tensor out0, Tensor out1, Tensor out2"},
    {"mean", "dtype_out", kParameters + 74, 3, "Tensor input, *, DataType? dtype=None, Tensor out"},
    {"mean", "out", kParameters + 77, 5, "Tensor input, int[1]? dim, bool keepdim=False, DataType? dtype=None, Tensor out"},
    {"normal", "Tensor_float_out", kParameters + 82, 4, "Tensor mean, float std=1.0, *, Generator? generator=None, Tensor out"},
    {"normal", "float_Tensor_out", kParameters + 86, 4, "float mean, Tensor std, *, Generator? generator=None, Tensor out"},
    {"normal", "Tensor_Tensor_out", kParameters + 90, 4, "Tensor mean, Tensor std, *, Generator? generator=None, Tensor out"},
    {"normal", "float_float_out", kParameters + 94, 5, "float mean, float std, int[] size, Generator? generator=None, Tensor out"},
    {"normal", "out", kParameters + 99, 5, "Tensor input, float mean=0.0, float std=1.0, Generator? generator=None, Tensor out"},
    {"random_inplace", "from", kParameters + 104, 4, "Tensor input, int from_, int? to, Generator? generator=None"},
    {"random_inplace", "to", kParameters + 108, 3, "Tensor input, int to, *, Generator? generator=None"},
    {"random_inplace", "", kParameters + 111, 2, "Tensor input, *, Generator? generator=None"},
    {"topk", "values", kParameters + 113, 7, "Tensor input, int k, int dim=-1, bool largest=True, bool sorted=True, Tensor values, Tensor indices"},
    {"upsample_nearest2d", "out", kParameters + 120, 5, "Tensor input, int[2] output_size, float? scales_h=None, float? scales_w=None, Tensor out"},
    {"upsample_nearest2d", "vec_out", kParameters + 125, 4, "Tensor input, int[]? output_size, float[]? scale_factors, Tensor out"},
};

}  // namespace

const Span<Row> kTable{kRows, std::size(kRows)};

}  // namespace infini::ops::generated
