#ifndef INFINI_OPS_SCHEMA_H_
#define INFINI_OPS_SCHEMA_H_

#include <array>
#include <cstdint>

#include "infini/ops/argument.h"
#include "infini/ops/span.h"

namespace infini::ops {

// One parameter of an overload, as data. A fluent interface builds it, so that the generated tables
// and the hand-written bases read like a schema: `Parameter(kInt, "dim").List(2).Default(1)`.
struct Parameter {
  enum class Type : std::uint8_t {
    kTensor,
    kScalar,
    kInt,
    kFloat,
    kBool,
    kString,
    kDataType,
    kLayout,
    kMemoryFormat,
    kDevice,
    kGenerator,
  };

  static constexpr std::int8_t kNotAList = -1;
  static constexpr std::int8_t kAnySize = 0;

  constexpr Parameter(Type kind, const char* spelled) : name(spelled), type(kind) {}

  // A list of `size` values (any number with `kAnySize`). As in torch, a single value for a list of
  // fixed size applies to all elements.
  constexpr Parameter List(std::int8_t size = kAnySize) const {
    Parameter copy = *this;
    copy.list_size = size;
    return copy;
  }
  // `None` is a valid argument.
  constexpr Parameter Optional() const {
    Parameter copy = *this;
    copy.is_optional = true;
    return copy;
  }
  // A list whose elements may be `None`.
  constexpr Parameter OptionalElements() const {
    Parameter copy = *this;
    copy.has_optional_elements = true;
    return copy;
  }
  // The call writes into it.
  constexpr Parameter Out() const {
    Parameter copy = *this;
    copy.is_out = true;
    return copy;
  }
  // The call reads it, and writes into it. It keeps its place among the inputs.
  constexpr Parameter InPlace() const { return Out(); }
  // A call must give it by name.
  constexpr Parameter KeywordOnly() const {
    Parameter copy = *this;
    copy.is_keyword_only = true;
    return copy;
  }
  constexpr Parameter Default(Argument value) const {
    Parameter copy = *this;
    copy.has_default = true;
    copy.default_value = value;
    return copy;
  }

  constexpr bool is_list() const { return list_size != kNotAList; }

  const char* name;
  Type type;
  std::int8_t list_size = kNotAList;
  bool is_optional = false;
  bool has_optional_elements = false;
  bool is_out = false;
  bool is_keyword_only = false;
  bool has_default = false;
  Argument default_value;
};

namespace internal {

// Hidden, because a variable has the visibility of its type, which the standard library exports.
template <std::int64_t... values>
__attribute__((visibility("hidden"))) inline constexpr std::array<std::int64_t, sizeof...(values)>
    kIntegers = {values...};

}  // namespace internal

// A list of integers with static storage, for the default of a parameter.
template <std::int64_t... values>
constexpr Span<std::int64_t> Integers() {
  return internal::kIntegers<values...>;
}

}  // namespace infini::ops

#endif  // INFINI_OPS_SCHEMA_H_
