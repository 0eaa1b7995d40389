#include "core/requirements.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/attention.h"
#include "core/concatenation.h"
#include "core/experts.h"
#include "core/product.h"
#include "core/quantization.h"
#include "core/rotary.h"

namespace infini::ops {
namespace {

// The size in a dimension of a shape of `rank` dimensions that `shape` broadcasts to.
std::int64_t ExtentIn(std::size_t rank, std::size_t dimension, Span<std::int64_t> shape) {
  const std::size_t missing = rank - shape.size();
  return dimension < missing ? 1 : shape[dimension - missing];
}

bool HaveSameShape(const Tensor& a, const Tensor& b) {
  return std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// False for types that this library does not know, whose size is unknown. NumPy views of raw bytes
// can be unaligned.
bool IsAligned(const Tensor& tensor) {
  const std::size_t size = DataTypeSize(tensor.data_type());
  // The size is a power of two. A division would double the time.
  return size != 0 && (reinterpret_cast<std::uintptr_t>(tensor.data()) & (size - 1)) == 0;
}

// The largest number that torch converts to the type; nothing for an integer type.
std::optional<double> LargestFloat(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 65504.0;
    case DataType::kBFloat16:
      return 0x1.FEp127;
    case DataType::kFloat32:
      return std::numeric_limits<float>::max();
    case DataType::kFloat64:
      return std::numeric_limits<double>::max();
    default:
      return std::nullopt;
  }
}

// True if torch also accepts `value` as a factor for tensors of this real type.
bool IsFactor(const Scalar& value, DataType type) {
  if (value.kind() == Scalar::Kind::kBool || value.kind() == Scalar::Kind::kComplex) return false;
  const std::optional<double> largest = LargestFloat(type);
  if (largest) {
    const auto real = value.To<double>();
    return std::isinf(real) || std::isnan(real) || std::abs(real) <= *largest;
  }
  if (!value.is_integral()) return false;
  const bool is_unsigned = kUnsignedTypes.Has(type);
  const auto bits = static_cast<int>(8 * DataTypeSize(type)) - (is_unsigned ? 0 : 1);
  const std::uint64_t limit = ~std::uint64_t{0} >> (64 - bits);
  const auto integer = value.To<std::uint64_t>();
  const bool is_negative = value.kind() == Scalar::Kind::kInt && value.To<std::int64_t>() < 0;
  // Torch lets a negative number be subtracted from an unsigned one.
  return is_negative ? -integer <= limit + (is_unsigned ? 0 : 1) : integer <= limit;
}

// True if `holds` does for each tensor. It gets the place of the argument, and the tensor.
template <typename Function>
bool AllTensors(const Invocation& call, const Function& holds) {
  for (std::size_t i = 0; i < call.size; ++i) {
    const Argument& argument = call.arguments[i];
    if (argument.tag != Argument::Tag::kTensor && argument.tag != Argument::Tag::kTensors) continue;
    for (std::uint32_t j = 0; j < argument.size; ++j) {
      if (!holds(i, argument.As<Tensor>()[j])) return false;
    }
  }
  return true;
}

// The types of the tensor at this place; nullptr if it has those of the others.
const DataTypes* OwnTypes(const Requirements& requirements, std::size_t place) {
  for (const TypedTensors& typed : requirements.typed) {
    if (typed.places >> place & 1) return &typed.types;
  }
  return nullptr;
}

bool HasTypes(const Invocation& call, const DataTypes& types, const Requirements& requirements) {
  const std::size_t out = call.FirstWritten();
  // If that has types of its own, as an index or a quantized tensor, the first input has the type
  // of the others.
  const bool is_apart = requirements.indices >> out & 1 || OwnTypes(requirements, out);
  const DataType type = call.tensor(is_apart ? 0 : out).data_type();
  return types.Has(type) && AllTensors(call, [&](std::size_t i, const Tensor& tensor) {
           if (const DataTypes* const own = OwnTypes(requirements, i)) {
             return own->Has(tensor.data_type());
           }
           if (requirements.indices >> i & 1) return kIndexTypes.Has(tensor.data_type());
           if (tensor.data_type() == type) return true;
           if (requirements.masks >> i & 1 && tensor.data_type() == DataType::kBool) return true;
           if (requirements.typing == Typing::kAny) return types.Has(tensor.data_type());
           return (types.float32 >> i & 1) && DataTypeSize(type) == 2 &&
                  tensor.data_type() == DataType::kFloat32;
         });
}

// True if `out` can be written while `other` is read, or also written.
bool CanWrite(const Tensor& out, const Tensor& other, bool is_one_view_allowed) {
  if (!out.defined() || !IsWritable(out, other)) return false;
  return is_one_view_allowed || other.data() != out.data() || other.element_count() == 0 ||
         out.element_count() == 0;
}

bool CanAccess(const Invocation& call, Reading reading) {
  const std::size_t first = call.FirstWritten();
  return AllTensors(call, [&](std::size_t i, const Tensor& tensor) {
    if (!tensor.defined() || !IsAligned(tensor)) return false;
    const bool is_only_read = !call.parameters[i].is_out;
    for (std::size_t out = first; out < call.size; ++out) {
      if (out == i || !call.parameters[out].is_out ||
          call.arguments[out].tag == Argument::Tag::kNone) {
        continue;
      }
      if (!CanWrite(call.tensor(out), tensor, is_only_read && reading == Reading::kOnce)) {
        return false;
      }
    }
    return true;
  });
}

bool AreFactors(const Invocation& call) {
  for (std::size_t i = 0; i < call.size; ++i) {
    if (call.parameters[i].type == Parameter::Type::kScalar &&
        !IsFactor(call.arguments[i].scalar, call.out().data_type())) {
      return false;
    }
  }
  return true;
}

bool IsNorm(const Tensor& input, const Tensor& weight, const Tensor& out) {
  return HaveSameShape(input, out) && out.dimensions() > 0 && weight.dimensions() == 1 &&
         weight.shape()[0] == out.shape()[out.dimensions() - 1];
}

bool IsAddNorm(const Invocation& call) {
  const Tensor& input = call.tensor(0);
  const Tensor& residual = call.tensor(1);
  bool fits = HaveSameShape(input, residual);
  const Tensor& weight = call.tensor(2);
  for (std::size_t i = call.FirstWritten(); i < call.size; ++i) {
    if (!call.parameters[i].is_out) continue;
    // The weight is read after the sums are written.
    fits &= HaveSameShape(input, call.tensor(i)) && CanWrite(call.tensor(i), weight, false);
  }
  return fits && IsNorm(input, weight, call.out());
}

bool HasShape(const Tensor& tensor, std::initializer_list<std::int64_t> shape) {
  return std::equal(tensor.shape().begin(), tensor.shape().end(), shape.begin(), shape.end());
}

// True if the tokens and their slots fit caches, both of the shape that `caches_fit` checks.
template <typename Function>
bool IsCached(const Invocation& call, const Function& caches_fit) {
  const Tensor& key = call.tensor(0);
  const Tensor& slots = call.tensor(2);
  const Tensor& value_cache = call.tensor(4);
  return key.dimensions() == 3 && HaveSameShape(key, call.tensor(1)) && slots.dimensions() == 1 &&
         slots.shape()[0] <= key.shape()[0] && value_cache.dimensions() == 4 &&
         caches_fit(key.shape()[1], key.shape()[2], call.tensor(3), value_cache);
}

bool HasPagedCaches(std::int64_t heads, std::int64_t size, const Tensor& keys,
                    const Tensor& values) {
  if (keys.dimensions() != 5) return false;
  const std::int64_t blocks = values.shape()[0];
  const std::int64_t block_size = values.shape()[3];
  const std::int64_t part = keys.shape()[4];
  return HasShape(values, {blocks, heads, size, block_size}) &&
         HasShape(keys, {blocks, heads, keys.shape()[2], block_size, part}) &&
         keys.shape()[2] * part == size;
}

bool HasFlashCaches(std::int64_t heads, std::int64_t size, const Tensor& keys,
                    const Tensor& values) {
  return HasShape(values, {values.shape()[0], values.shape()[1], heads, size}) &&
         HaveSameShape(keys, values);
}

bool HasCausalRows(const Tensor& input, const Tensor& out) {
  const std::size_t rank = out.dimensions();
  return HaveSameShape(input, out) && rank >= 2 && out.shape()[rank - 2] <= out.shape()[rank - 1];
}

bool HasHalves(const Tensor& input, const Tensor& out) {
  const std::size_t rank = out.dimensions();
  if (rank == 0 || input.dimensions() != rank) return false;
  const std::int64_t size = input.shape()[rank - 1];
  return size % 2 == 0 && size / 2 == out.shape()[rank - 1] &&
         std::equal(out.shape().begin(), out.shape().end() - 1, input.shape().begin());
}

bool IsSampling(const Invocation& call) {
  // The sum of as many weights of 40 bits fits into 64 bits.
  constexpr std::int64_t most_tokens = std::int64_t{1} << 22;
  const Tensor& logits = call.tensor(0);
  if (logits.dimensions() != 2) return false;
  const std::int64_t batch = logits.shape()[0];
  const std::int64_t vocabulary = logits.shape()[1];
  for (const std::size_t i : {6, 7, 8, 9}) {
    if (call.arguments[i].tag != Argument::Tag::kNone && !HasShape(call.tensor(i), {batch})) {
      return false;
    }
  }
  const Argument& top_ps = call.arguments[7];
  const auto top_p = call.arguments[2].scalar.To<double>();
  return vocabulary <= most_tokens && (vocabulary > 0 || batch == 0) && 0 <= top_p && top_p <= 1 &&
         (top_ps.tag == Argument::Tag::kNone || call.tensor(7).data_type() == DataType::kFloat32);
}

bool Meets(const Invocation& call, Condition condition) {
  switch (condition) {
    case Condition::kNone:
      return true;
    case Condition::kFactors:
      return AreFactors(call);
    case Condition::kElementwise:
      return IsBroadcastOf(call.out().shape(), {call.tensor(0).shape(), call.tensor(1).shape()});
    case Condition::kBroadcast:
      return BroadcastsTo(call.tensor(0).shape(), call.out().shape());
    case Condition::kConcatenation:
      return IsConcatenation({call.arguments[0].As<Tensor>(), call.arguments[0].size},
                             call.arguments[1].scalar.To<std::int64_t>(), call.out());
    case Condition::kCausalRows:
      return HasCausalRows(call.tensor(0), call.out());
    case Condition::kRows:
      return HaveSameShape(call.tensor(0), call.out()) && call.out().dimensions() > 0;
    case Condition::kNorm:
      return IsNorm(call.tensor(0), call.tensor(1), call.out());
    case Condition::kAddNorm:
      return IsAddNorm(call);
    case Condition::kHalves:
      return HasHalves(call.tensor(0), call.out());
    case Condition::kPagedCache:
      return IsCached(call, HasPagedCaches);
    case Condition::kFlashCache:
      return IsCached(call, HasFlashCaches);
    case Condition::kTensorScale:
      return HasTensorScale(call);
    case Condition::kTokenScale:
      return HasTokenScale(call);
    case Condition::kGroupScale:
      return HasGroupScale(call);
    case Condition::kScaledProduct:
      return HasScaledProduct(call);
    case Condition::kRotary:
      return RotaryOf(call, nullptr);
    case Condition::kGemm:
      return GemmOf(call, nullptr);
    case Condition::kLinear:
      return LinearOf(call, nullptr);
    case Condition::kMatmul:
      return MatmulOf(call, nullptr);
    case Condition::kAttention:
      return AttentionOf(call, nullptr);
    case Condition::kVarlenAttention:
      return VarlenAttentionOf(call, nullptr);
    case Condition::kCachedAttention:
      return CachedAttentionOf(call, nullptr);
    case Condition::kSampling:
      return IsSampling(call);
    case Condition::kTopkGating:
      return IsTopkGating(call);
    case Condition::kGroupedTopk:
      return IsGroupedTopk(call);
    case Condition::kBlockAlignment:
      return IsBlockAlignment(call);
    case Condition::kExpertSum:
      return IsExpertSum(call);
    case Condition::kGroupedGemm:
      return IsGroupedGemm(call);
  }
  return false;
}

std::string DescribeScalar(const Scalar& value) {
  switch (value.kind()) {
    case Scalar::Kind::kBool:
      return value.To<bool>() ? "True" : "False";
    case Scalar::Kind::kInt:
      return std::to_string(value.To<std::int64_t>());
    case Scalar::Kind::kUnsigned:
      return std::to_string(value.To<std::uint64_t>());
    case Scalar::Kind::kDouble:
      return std::to_string(value.To<double>());
    default:
      return "complex";
  }
}

bool IsDefault(const Argument& argument, const Parameter& parameter) {
  if (!parameter.has_default || argument.tag != parameter.default_value.tag) return false;
  return argument.tag == Argument::Tag::kNone ||
         (argument.scalar.kind() != Scalar::Kind::kComplex &&
          argument.scalar.To<double>() == parameter.default_value.scalar.To<double>());
}

std::string DescribeArgument(const Argument& argument, const Parameter& parameter) {
  switch (argument.tag) {
    case Argument::Tag::kNone:
      return std::string(parameter.name) + " None";
    case Argument::Tag::kTensor:
      return (parameter.is_out ? parameter.name + std::string(" ") : "") +
             Describe(*argument.As<Tensor>());
    case Argument::Tag::kTensors: {
      std::string text;
      for (std::uint32_t i = 0; i < argument.size; ++i) {
        text += (i ? ", " : "") + Describe(argument.As<Tensor>()[i]);
      }
      return '(' + text + ')';
    }
    default:
      return parameter.name + (' ' + DescribeScalar(argument.scalar));
  }
}

// "a, b and c".
std::string Join(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

// The names of the parameters whose place `is_named`.
template <typename Function>
std::string Names(const Invocation& call, const Function& is_named) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < call.size; ++i) {
    if (is_named(i)) names.push_back(call.parameters[i].name);
  }
  return Join(names);
}

}  // namespace

bool BroadcastsTo(Span<std::int64_t> shape, Span<std::int64_t> out) {
  if (shape.size() > out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t extent = ExtentIn(out.size(), i, shape);
    if (extent != 1 && extent != out[i]) return false;
  }
  return true;
}

bool IsBroadcastOf(Span<std::int64_t> out, std::initializer_list<Span<std::int64_t>> shapes) {
  std::size_t rank = 0;
  for (const Span<std::int64_t> shape : shapes) rank = std::max(rank, shape.size());
  if (out.size() != rank) return false;
  for (std::size_t i = 0; i < rank; ++i) {
    bool comes_from_input = false;
    for (const Span<std::int64_t> shape : shapes) {
      const std::int64_t extent = ExtentIn(rank, i, shape);
      if (extent != 1 && extent != out[i]) return false;
      comes_from_input |= extent == out[i];
    }
    if (!comes_from_input) return false;
  }
  return true;
}

bool Implementation::Check(const Invocation& call) const {
  const DataTypes& types = limits ? limits->types : requirements->types;
  if (!CanAccess(call, requirements->reading) || !HasTypes(call, types, *requirements)) {
    return false;
  }
  for (const Requirement& requirement : requirements->others) {
    if (!Meets(call, requirement.condition)) return false;
  }
  return !limits || !limits->hold || limits->hold(call);
}

std::string Refusal(const Overload& overload, const Implementation& implementation,
                    const Invocation& invocation) {
  const Requirements& requirements = *implementation.requirements;
  const Limits* const limits = implementation.limits;
  std::string text = overload.operator_name + (": slot " + std::to_string(implementation.slot)) +
                     " takes aligned strided tensors of " +
                     (requirements.typing == Typing::kAny ? "any " : "one ") +
                     (limits ? limits->types : requirements.types).name;
  const auto add_types = [&](std::uint32_t places, const char* types) {
    const std::string names = Names(invocation, [&](std::size_t i) { return places >> i & 1; });
    if (!names.empty()) text += ", " + names + " of " + types;
  };
  add_types(requirements.indices, kIndexTypes.name);
  for (const TypedTensors& typed : requirements.typed) add_types(typed.places, typed.types.name);
  const auto& others = requirements.others;
  const Requirement* const last = others[1].text ? &others[1] : &others[0];
  for (const Requirement& other : others) {
    if (other.text) text += std::string(&other == last ? ", and " : ", ") + other.text;
  }
  const std::string written =
      Names(invocation, [&](std::size_t i) { return invocation.parameters[i].is_out; });
  const bool is_one = written == invocation.parameters[invocation.FirstWritten()].name;
  text += "; " + written + " must not overlap " + (is_one ? "itself" : "themselves, each other");
  text += requirements.reading == Reading::kOnce ? ", or an input unless both are the same view"
                                                 : " or an input";
  if (limits && limits->text) text += std::string("; ") + limits->text;
  std::vector<std::string> got;
  for (std::size_t i = 0; i < invocation.size; ++i) {
    if (IsDefault(invocation.arguments[i], invocation.parameters[i])) continue;
    got.push_back(DescribeArgument(invocation.arguments[i], invocation.parameters[i]));
  }
  return text + "; got " + Join(got);
}

}  // namespace infini::ops
