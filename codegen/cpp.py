"""Formats parts of the model as C++ expressions and types."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codegen.model import Default, Operator, Overload, Parameter, ParameterKind

_VALUE_TYPES = {
    ParameterKind.TENSOR: "Tensor",
    ParameterKind.SCALAR: "Scalar",
    ParameterKind.INT: "std::int64_t",
    ParameterKind.FLOAT: "double",
    ParameterKind.BOOL: "bool",
    ParameterKind.STRING: "std::string_view",
    ParameterKind.DATA_TYPE: "DataType",
    ParameterKind.LAYOUT: "Layout",
    ParameterKind.MEMORY_FORMAT: "MemoryFormat",
    ParameterKind.DEVICE: "Device",
    # A generator is an object of the framework. C++ callers can only pass "no generator".
    ParameterKind.GENERATOR: "std::nullopt_t",
}
# The types in signatures; other kinds have their own name.
_TYPE_NAMES = {
    ParameterKind.INT: "int",
    ParameterKind.FLOAT: "float",
    ParameterKind.BOOL: "bool",
    ParameterKind.STRING: "str",
}
_BY_REFERENCE = (ParameterKind.TENSOR, ParameterKind.SCALAR)


def parameter_row(parameter: Parameter) -> str:
    """The entry of a parameter in the operator table: ``P(kInt, "dim").List(1).Default(kNone)``."""
    row = f'P(k{parameter.kind.value}, "{parameter.name}")'
    if parameter.is_list:
        row += f".List({parameter.list_size})" if parameter.list_size else ".List()"
    if parameter.is_optional:
        row += ".Optional()"
    if parameter.has_optional_elements:
        row += ".OptionalElements()"
    if parameter.is_out:
        row += ".Out()"
    if parameter.is_keyword_only:
        row += ".KeywordOnly()"
    if parameter.aten_default is not None:
        row += f".Default({default_value(parameter)})"
    return row


def default_value(parameter: Parameter) -> str:
    """The schema's default as a C++ expression of the parameter's type."""
    value = _default(parameter)
    if isinstance(value, tuple):
        return f"Integers<{', '.join(map(str, value))}>()"
    if value is None:
        return "std::nullopt"
    if isinstance(value, bool):
        return str(value).lower()
    return f'std::string_view("{value}")' if isinstance(value, str) else repr(value)


def signature(overload: Overload) -> str:
    """The parameters of an overload in messages and documentation: ``Tensor input, Tensor out``."""
    by_position = len(overload.positional_inputs)
    parameters = [_declaration(parameter) for parameter in overload.parameters]
    if by_position < len(overload.inputs):
        parameters.insert(by_position, "*")
    return ", ".join(parameters)


def _declaration(parameter: Parameter) -> str:
    type_ = replace(
        parameter.argument.type, base=_TYPE_NAMES.get(parameter.kind, parameter.kind.value)
    )
    text = f"{type_} {parameter.name}"
    if parameter.aten_default is None:
        return text
    value = _default(parameter)
    return f"{text}={list(value) if isinstance(value, tuple) else value!r}"


def argument_type(parameter: Parameter) -> str:
    """The C++ type of this parameter in ``Call`` of an operator class."""
    value = _VALUE_TYPES[parameter.kind]
    if parameter.is_list:
        value = f"Span<{value}>"
    elif parameter.kind is ParameterKind.GENERATOR:
        return value
    if parameter.is_optional:
        return f"const std::optional<{value}>&"
    if parameter.kind in _BY_REFERENCE and not parameter.is_list:
        return f"const {value}&"
    return value


def _default(parameter: Parameter) -> Default:
    """The schema's default as a value of the parameter's type."""
    value = parameter.default
    if parameter.is_list and isinstance(value, int):
        # A single value for a list of fixed size applies to all elements.
        return (value,) * (parameter.list_size or 1)
    is_float = parameter.kind is ParameterKind.FLOAT
    return float(value) if is_float and isinstance(value, int) else value


@dataclass(frozen=True, kw_only=True)
class CallForm:
    """One ``Call`` of an operator class: an overload without its last ``omitted`` inputs."""

    overload: Overload
    omitted: int

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        inputs = self.overload.inputs
        return inputs[: len(inputs) - self.omitted] + self.overload.outs

    @property
    def arguments(self) -> list[str]:
        """The dispatched arguments: the parameters, and the defaults of the omitted inputs."""
        taken = self.parameters
        return [
            parameter.name if parameter in taken else default_value(parameter)
            for parameter in self.overload.parameters
        ]


def call_forms(operator: Operator) -> list[CallForm]:
    """The ``Call`` overloads of an operator; of several with the same C++ types, the first one.

    They have the order in which a call from Python tries the overloads, so both languages choose
    the same overload.
    """
    by_types: dict[tuple[str, ...], CallForm] = {}
    for overload in operator.overloads:
        for omitted in range(overload.default_count + 1):
            form = CallForm(overload=overload, omitted=omitted)
            types = tuple(argument_type(parameter) for parameter in form.parameters)
            by_types.setdefault(types, form)
    return list(by_types.values())
