#include <cstdlib>
#include <iomanip>
#include <limits>
#include <sstream>

#include "infini/ops/schema.h"

namespace infini::ops {
namespace {

const char* TypeName(Parameter::Type type) {
  switch (type) {
    case Parameter::Type::kTensor:
      return "Tensor";
    case Parameter::Type::kScalar:
      return "Scalar";
    case Parameter::Type::kInt:
      return "int";
    case Parameter::Type::kFloat:
      return "float";
    case Parameter::Type::kBool:
      return "bool";
    case Parameter::Type::kString:
      return "str";
    case Parameter::Type::kDataType:
      return "DataType";
    case Parameter::Type::kLayout:
      return "Layout";
    case Parameter::Type::kMemoryFormat:
      return "MemoryFormat";
    case Parameter::Type::kDevice:
      return "Device";
    case Parameter::Type::kGenerator:
      return "Generator";
  }
  return "?";
}

std::string TypeText(const Parameter& parameter) {
  std::string text = TypeName(parameter.type);
  if (parameter.has_optional_elements) text += '?';
  if (parameter.is_list()) {
    text += '[';
    if (parameter.list_size != Parameter::kAnySize) text += std::to_string(parameter.list_size);
    text += ']';
  }
  return parameter.is_optional ? text + '?' : text;
}

// With the fewest digits that give the same number again: 0.1, not 0.10000000000000001.
void WriteDouble(double value, std::ostream& out) {
  using Limits = std::numeric_limits<double>;
  std::string text;
  for (int digits = Limits::digits10; digits <= Limits::max_digits10; ++digits) {
    std::ostringstream rounded;
    rounded << std::setprecision(digits) << value;
    text = rounded.str();
    // Not `std::stod`: it throws if the rounded largest number becomes infinite.
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  out << text;
}

void WriteScalar(const Scalar& value, std::ostream& out) {
  switch (value.kind()) {
    case Scalar::Kind::kBool:
      out << (value.To<bool>() ? "True" : "False");
      break;
    case Scalar::Kind::kUnsigned:
      out << value.To<std::uint64_t>();
      break;
    case Scalar::Kind::kInt:
      out << value.To<std::int64_t>();
      break;
    case Scalar::Kind::kDouble:
      WriteDouble(value.To<double>(), out);
      break;
    case Scalar::Kind::kComplex:
      out << '(' << value.To<double>() << ',' << value.imaginary() << ')';
      break;
  }
}

template <typename T>
void WriteList(const Argument& argument, std::ostream& out) {
  out << '[';
  for (std::size_t i = 0; i < argument.size; ++i) {
    out << (i ? ", " : "") << argument.As<T>()[i];
  }
  out << ']';
}

// Defaults are numbers, strings, `None` and lists of numbers; schemas contain no others.
void WriteDefault(const Argument& argument, std::ostream& out) {
  switch (argument.tag) {
    case Argument::Tag::kScalar:
    case Argument::Tag::kEnumeration:
      return WriteScalar(argument.scalar, out);
    case Argument::Tag::kString:
      out << '\'' << argument.string() << '\'';
      return;
    case Argument::Tag::kIntegers:
      return WriteList<std::int64_t>(argument, out);
    default:
      out << "None";
  }
}

}  // namespace

std::string Signature(const char* operator_name, Span<Parameter> parameters) {
  std::ostringstream out;
  out << operator_name << '(';
  const char* separator = "";
  for (const Parameter& parameter : parameters) {
    out << separator << TypeText(parameter) << ' ' << parameter.name;
    separator = ", ";
    if (!parameter.has_default) continue;
    out << '=';
    WriteDefault(parameter.default_value, out);
  }
  out << ')';
  return out.str();
}

}  // namespace infini::ops
