"""Translates torch's declarations into operators of the library, or gives the skip reason."""

from __future__ import annotations

import ast
import itertools
import keyword
import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from codegen.model import (
    RESERVED_CLASS_NAMES,
    RESERVED_NAMES,
    Argument,
    Base,
    Choice,
    Declaration,
    Default,
    Library,
    Operator,
    Overload,
    Parameter,
    ParameterKind,
    Schemas,
    SkippedOverload,
    SkipReason,
    Type,
    class_name,
    is_identifier,
)

# kMaxParameters in src/bindings/call_storage.h; torch 2.13 has at most 25.
MAX_PARAMETERS = 64

KINDS: dict[str, ParameterKind | SkipReason] = {
    "Tensor": ParameterKind.TENSOR,
    "Scalar": ParameterKind.SCALAR,
    "int": ParameterKind.INT,
    "SymInt": ParameterKind.INT,
    "DeviceIndex": ParameterKind.INT,
    "float": ParameterKind.FLOAT,
    "bool": ParameterKind.BOOL,
    "str": ParameterKind.STRING,
    "ScalarType": ParameterKind.DATA_TYPE,
    "Layout": ParameterKind.LAYOUT,
    "MemoryFormat": ParameterKind.MEMORY_FORMAT,
    "Device": ParameterKind.DEVICE,
    "Generator": ParameterKind.GENERATOR,
    "Dimname": SkipReason.DIMNAME,
    "Storage": SkipReason.STORAGE,
    "Stream": SkipReason.STREAM,
    "QScheme": SkipReason.QSCHEME,
}
# The lists that src/torch/kernel.h converts.
_LIST_KINDS = (ParameterKind.TENSOR, ParameterKind.SCALAR, ParameterKind.INT, ParameterKind.FLOAT)

# Enumerators that schemas use as defaults: at::Reduction and c10::MemoryFormat.
_NAMED_DEFAULTS = {
    (ParameterKind.INT, "Mean"): 1,
    (ParameterKind.MEMORY_FORMAT, "contiguous_format"): 0,
}
_LITERALS: dict[ParameterKind, tuple[type, ...]] = {
    ParameterKind.SCALAR: (bool, int, float),
    ParameterKind.INT: (int,),
    ParameterKind.FLOAT: (int, float),
    ParameterKind.BOOL: (bool,),
    ParameterKind.STRING: (str,),
}


def make_library(
    schemas: Schemas,
    choice: Choice | None = None,
    bases: Mapping[str, Base] | None = None,
    native: Collection[str] = (),
) -> Library:
    """Build the library of the selected operators, all by default; ``skipped`` lists the others.

    ``bases`` are the hand-written bases. The build implements those in ``native``.
    """
    choice = choice or Choice()
    bases = bases or {}
    public = schemas.public_names
    taken = set(RESERVED_NAMES | RESERVED_CLASS_NAMES)
    operators = []
    skipped = [
        SkippedOverload(aten_name=name, overload_name="", reason=SkipReason.NOT_IN_TORCH)
        for name in choice.missing
    ]
    # In the order of native_functions.yaml: operators that a fork appends can't take a name from
    # others.
    for aten_name, declarations in schemas.by_name.items():
        name = public[aten_name]
        omission = choice.omitted.get(aten_name)
        overloads = []
        for declaration in declarations:
            overload = (
                omission.reason if omission else _translate_overload(name, declaration, taken)
            )
            if not isinstance(overload, SkipReason) and _conflicts_with(overload, bases.get(name)):
                overload = SkipReason.OTHER_BASE
            if isinstance(overload, Overload):
                overloads.append(overload)
                continue
            overload_name = declaration.schema.overload_name
            skipped.append(
                SkippedOverload(aten_name=aten_name, overload_name=overload_name, reason=overload)
            )
        if overloads:
            ordered = _with_keyword_only(_sort_overloads(overloads))
            operators.append(Operator(name=name, class_name=class_name(name), overloads=ordered))
            taken |= {name, class_name(name)}
    return Library(
        torch_version=schemas.torch_version,
        operators=tuple(sorted(operators, key=lambda operator: operator.name)),
        skipped=tuple(sorted(skipped, key=lambda skip: skip.aten_name)),
        native=tuple(
            Operator(name=name, class_name=class_name(name), overloads=(base.overload,))
            for name, base in bases.items()
            if name in native and name not in taken
        ),
    )


def _conflicts_with(overload: Overload, base: Base | None) -> bool:
    """True if overload and base have different parameters, so that they can't share a table row."""
    if base is None or base.overload.schema.overload_name != overload.schema.overload_name:
        return False
    return [p.call_signature for p in base.overload.parameters] != [
        p.call_signature for p in overload.parameters
    ]


def _sort_overloads(overloads: list[Overload]) -> tuple[Overload, ...]:
    """Sort overloads: schema order, but an overload comes before any that also accepts its calls.

    A call uses the first overload that fits. ``all.dims_out(x, out)`` has a ``dim`` with the
    default None. If it came first, no call would reach ``all.all_out``.
    """
    ordered: list[Overload] = []
    for overload in overloads:
        types = [str(parameter.argument.type) for parameter in overload.parameters]
        places = (n for n, other in enumerate(ordered) if types == _required_types(other))
        ordered.insert(next(places, len(ordered)), overload)
    return tuple(ordered)


def _with_keyword_only(overloads: tuple[Overload, ...]) -> tuple[Overload, ...]:
    """Mark what ATen declares after ``*`` if other overloads have another parameter in its place.

    ``linalg_pinv(A, 0.2)`` is a call of the overload with ``rcond``, not of the one with ``atol``.
    """
    names = [  # of the parameters that ATen takes by position
        [each.name for each in overload.inputs if not each.argument.keyword_only]
        for overload in overloads
    ]

    def marked(parameter: Parameter, index: int) -> Parameter:
        others = {each[index] for each in names if index < len(each)}
        is_free = (
            not parameter.argument.keyword_only or parameter.is_out or others <= {parameter.name}
        )
        return parameter if is_free else replace(parameter, is_keyword_only=True)

    return tuple(
        replace(overload, parameters=tuple(map(marked, overload.parameters, itertools.count())))
        for overload in overloads
    )


def _required_types(overload: Overload) -> list[str]:
    parameters = overload.parameters
    return [str(each.argument.type) for each in parameters if each.argument.default is None]


def _translate_overload(
    name: str, declaration: Declaration, taken: set[str]
) -> Overload | SkipReason:
    if not is_identifier(name) or keyword.iskeyword(name):
        return SkipReason.BAD_NAME
    if name in taken or class_name(name) in taken:
        return SkipReason.NAME_TAKEN
    return overload_of(declaration)


def overload_of(declaration: Declaration) -> Overload | SkipReason:
    """Translate one declaration, or return the skip reason."""
    parameters = []
    for parameter in map(parameter_of, declaration.schema.arguments):
        if isinstance(parameter, SkipReason):
            return parameter
        parameters.append(parameter)
    if len(parameters) > MAX_PARAMETERS:
        return SkipReason.TOO_MANY_PARAMETERS
    names = [parameter.name for parameter in parameters]
    spelled = [*names, declaration.schema.function]
    if len(set(names)) < len(names) or not all(map(is_identifier, spelled)):
        return SkipReason.BAD_NAME
    return Overload(declaration=declaration, parameters=tuple(parameters))


def parameter_of(argument: Argument) -> Parameter | SkipReason:
    """Translate one argument, or return the skip reason."""
    kind = kind_of(argument.type)
    if isinstance(kind, SkipReason):
        return kind
    default = None if argument.default is None else parse_default(argument, kind)
    if isinstance(default, SkipReason):
        return default
    return Parameter(argument=argument, kind=kind, default=default)


def kind_of(type_: Type) -> ParameterKind | SkipReason:
    """The kind of one element of the type, or the skip reason."""
    kind = KINDS.get(type_.base, SkipReason.UNKNOWN_TYPE)
    if isinstance(kind, SkipReason) or type_.list_size is None:
        return kind
    if type_.has_optional_elements:
        known = kind is ParameterKind.TENSOR
    elif kind is ParameterKind.BOOL:
        known = type_.list_size > 0
    elif kind is ParameterKind.SCALAR:
        known = not type_.is_optional
    else:
        known = kind in _LIST_KINDS
    return kind if known else SkipReason.UNKNOWN_TYPE


def parse_default(argument: Argument, kind: ParameterKind) -> Default | SkipReason:
    """Parse the argument's default, or return the skip reason."""
    text = argument.default
    assert text is not None
    if text == "None":
        return None if argument.type.is_optional else SkipReason.UNKNOWN_DEFAULT
    if (kind, text) in _NAMED_DEFAULTS:
        return _NAMED_DEFAULTS[kind, text]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return SkipReason.UNKNOWN_DEFAULT
    is_list = argument.type.list_size is not None
    # Of all lists, only lists of integers have defaults. A single number may apply to all elements.
    elements = value if is_list and isinstance(value, list) else [value]
    are_literals = all(_is_literal(each, kind) for each in elements)
    if not are_literals or (is_list and kind is not ParameterKind.INT):
        return SkipReason.UNKNOWN_DEFAULT
    return tuple(value) if isinstance(value, list) else value


def _is_literal(value: object, kind: ParameterKind) -> bool:
    """True if the value has the kind's type and the same meaning as a C++ literal."""
    if type(value) not in _LITERALS.get(kind, ()):
        return False
    if isinstance(value, str):
        return value.isascii() and value.isprintable() and not set(value) & set('"\\')
    assert isinstance(value, bool | int | float), value
    return math.isfinite(value) and (isinstance(value, float) or abs(value) < 2**63)
