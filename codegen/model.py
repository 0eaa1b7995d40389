"""The data of the generators: ATen's declarations, and the operators made from them.

The first part defines names. The second describes the declarations of torch without loss:
``str(schema)`` is the text in ``native_functions.yaml``. The third describes which of them are
generated, and the last the resulting operators of the library.
"""

from __future__ import annotations

import itertools
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

INTERNAL_PREFIX = "internal_"
INPLACE_SUFFIX = "_inplace"

# Names that the library itself defines in these scopes. An operator of a fork must not replace
# them.
RESERVED_NAMES = frozenset(  # in `infini.ops`
    {
        *("compat", "devices", "include_dir", "last_call", "metadata_path", "native_metadata_path"),
        *("platforms", "torch_library"),
    }
)
RESERVED_CLASS_NAMES = frozenset(  # in C++ `infini::ops`, and in `infini.ops`
    {
        *("Argument", "Call", "CallOptions", "ClearCacheOf", "Condition", "DataType"),
        *("DataTypes", "Device", "DeviceType", "DeviceTypeInfo", "Implementation", "Invocation"),
        *("Kernel", "Layout", "Limits", "LimitsOf", "MemoryFormat", "Operator", "OperatorBase"),
        *("OperatorEntry", "Overload", "Parameter", "Platform", "Predicate", "Reading"),
        *("Registration", "Requirement", "Requirements", "RequirementsOf", "Scalar", "Selection"),
        *("Slot", "SlotOrder", "Span", "SupportsOf", "Tensor", "TypedTensors", "Typing"),
        "Unpacked",
    }
)
# Keyword parameters of every operator, and local names of the generated `Call`.
RESERVED_PARAMETERS = frozenset({"implementation_index", "stream", "options", "overload"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def public_name(aten_name: str, *, inplace: bool) -> str:
    """Convert an ATen base name to the operator's name in ``infini.ops``.

    Leading underscores become ``internal_``. The trailing underscore of an in-place operator
    becomes ``_inplace``. Examples: ``_softmax`` is ``internal_softmax``, ``abs_`` is
    ``abs_inplace``, ``__iand__`` is ``internal_iand_inplace``.
    """
    core = aten_name.strip("_")
    prefix = INTERNAL_PREFIX if aten_name.startswith("_") else ""
    return f"{prefix}{core}{INPLACE_SUFFIX if inplace else ''}"


def class_name(name: str) -> str:
    """Pascal case of a public name: ``log_softmax`` is ``LogSoftmax``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def parameter_name(aten_argument: str) -> str:
    """Convert an argument name of ATen: ``self`` becomes ``input``.

    A reserved name gets a trailing underscore. C++ keywords do not occur: torch's own headers use
    the names of its schemas.
    """
    if aten_argument == "self":
        return "input"
    is_taken = aten_argument in RESERVED_PARAMETERS or keyword.iskeyword(aten_argument)
    return f"{aten_argument}_" if is_taken else aten_argument


def is_identifier(name: str) -> bool:
    """True for a valid identifier in both Python and C++."""
    return _IDENTIFIER.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Type:
    """A type of a schema, ``int[2]?`` for example, without its alias annotation.

    A type that the other fields can't describe, such as a list of lists, is kept as text in
    ``base``.
    """

    base: str
    list_size: int | None = None  # None: not a list; 0: a list of any size
    is_optional: bool = False
    has_optional_elements: bool = False

    def __post_init__(self) -> None:
        assert self.list_size is not None or not self.has_optional_elements, self.base

    def __str__(self) -> str:
        return self.annotated(None)

    def annotated(self, annotation: str | None) -> str:
        """The text of the type with an alias annotation: ``Tensor(a!)[]``."""
        text = f"{self.base}({annotation})" if annotation else self.base
        if self.has_optional_elements:
            text += "?"
        if self.list_size is not None:
            text += f"[{self.list_size or ''}]"
        return f"{text}?" if self.is_optional else text


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a schema, with ATen's names."""

    name: str
    type: Type
    annotation: str | None  # "a!": aliased and written
    default: str | None
    keyword_only: bool

    @property
    def is_written(self) -> bool:
        return self.annotation is not None and "!" in self.annotation

    def __str__(self) -> str:
        default = "" if self.default is None else f"={self.default}"
        return f"{self.type.annotated(self.annotation)} {self.name}{default}"


@dataclass(frozen=True, kw_only=True)
class Return:
    """A return value of a schema; most have no name."""

    name: str | None
    type: Type
    annotation: str | None

    def __str__(self) -> str:
        text = self.type.annotated(self.annotation)
        return f"{text} {self.name}" if self.name else text


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The signature of one overload; ``str`` gives the text that torchgen parsed."""

    aten_name: str
    overload_name: str
    arguments: tuple[Argument, ...]  # in the order of the text
    returns: tuple[Return, ...]

    def __post_init__(self) -> None:
        keywords = [argument.keyword_only for argument in self.arguments]
        assert keywords == sorted(keywords), f"{self}: a positional argument after a keyword one"

    @property
    def full_name(self) -> str:
        return ".".join(filter(None, (self.aten_name, self.overload_name)))

    @property
    def function(self) -> str:
        """``abs_out``, as in ``at::_ops::abs_out``."""
        return "_".join(filter(None, (self.aten_name, self.overload_name)))

    def __str__(self) -> str:
        positional = [str(each) for each in self.arguments if not each.keyword_only]
        keywords = [str(each) for each in self.arguments if each.keyword_only]
        arguments = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
        returns = ", ".join(map(str, self.returns))
        if len(self.returns) != 1:
            returns = f"({returns})"
        return f"{self.full_name}({arguments}) -> {returns}"


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """A function of torch that writes into its arguments: an ``out=`` or in-place function."""

    schema: Schema
    cpp_call: str  # C++ declaration of ``at::_ops::abs_out::call``; "" without one
    is_inplace: bool
    tags: tuple[str, ...]
    line: int  # in native_functions.yaml; of the base operator if torchgen derived this one


@dataclass(frozen=True, kw_only=True)
class Schemas:
    """The functions of one torch version that write into their arguments, by ATen base name."""

    torch_version: str
    by_name: Mapping[str, tuple[Declaration, ...]]

    @property
    def public_names(self) -> Mapping[str, str]:
        """The public name of each ATen base name."""
        return {
            name: public_name(name, inplace=declarations[0].is_inplace)
            for name, declarations in self.by_name.items()
        }


class ParameterKind(Enum):
    """The element type of a parameter: the enumerators of C++ ``Parameter::Type``."""

    TENSOR = "Tensor"
    SCALAR = "Scalar"
    INT = "Int"
    FLOAT = "Float"
    BOOL = "Bool"
    STRING = "String"
    DATA_TYPE = "DataType"
    LAYOUT = "Layout"
    MEMORY_FORMAT = "MemoryFormat"
    DEVICE = "Device"
    GENERATOR = "Generator"


class SkipReason(Enum):
    """Why an overload of torch is not generated. A test fixes the list of values."""

    EXCLUDED = "excluded by the selection"
    NOT_SELECTED = "not selected"
    NOT_IN_TORCH = "not in this torch"
    DIMNAME = "takes named dimensions"
    STORAGE = "takes a storage"
    STREAM = "takes a stream object"
    QSCHEME = "takes a quantizer scheme"
    UNKNOWN_TYPE = "takes a type that the generator does not know"
    UNKNOWN_DEFAULT = "has a default that the generator does not know"
    TOO_MANY_PARAMETERS = "has too many parameters"
    BAD_NAME = "has a name that is no identifier, or the same one twice"
    NAME_TAKEN = "its public name is taken"
    OTHER_BASE = "its hand-written base has other parameters"


@dataclass(frozen=True, kw_only=True)
class Omission:
    """Why a selection leaves an operator out, as a value for programs and as text."""

    reason: SkipReason
    explanation: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The result of the selections for one torch; by default, all operators are generated."""

    omitted: Mapping[str, Omission] = field(default_factory=dict)  # by ATen base name
    missing: tuple[str, ...] = ()  # listed in a file, but not an operator of this torch
    notes: tuple[str, ...] = ()


Default = bool | int | float | str | None | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of an overload: ATen's argument and its kind in the library.

    ``default`` is the parsed value. It has a meaning only if ``aten_default`` is not None.
    """

    argument: Argument
    kind: ParameterKind
    default: Default
    # Another overload of the operator has another parameter at this position. ATen's own rule, that
    # what follows `*` is given by name, decides then; elsewhere calls may give it by position.
    is_keyword_only: bool = False

    @property
    def name(self) -> str:
        return parameter_name(self.argument.name)

    @property
    def aten_default(self) -> str | None:
        return self.argument.default

    @property
    def list_size(self) -> int | None:
        return self.argument.type.list_size

    @property
    def is_optional(self) -> bool:
        return self.argument.type.is_optional

    @property
    def has_optional_elements(self) -> bool:
        return self.argument.type.has_optional_elements

    @property
    def is_out(self) -> bool:
        return self.argument.is_written

    @property
    def is_list(self) -> bool:
        return self.list_size is not None

    def metadata(self) -> dict[str, object]:
        """The entry of this parameter in the metadata files."""
        return {
            "name": self.name,
            "type": str(self.argument.type),
            "is_tensor": self.kind is ParameterKind.TENSOR,
            "is_out": self.is_out,
            "default": self.aten_default,
        }

    @property
    def call_signature(self) -> tuple[object, ...]:
        """Comparison key: equal for two parameters that accept the same values in the same way.

        Two types with different names in schemas can be equal: ``SymInt`` and ``int``.
        """
        has_default = self.aten_default is not None
        return (
            *(self.name, self.kind, self.is_out, has_default, self.default),
            *(self.list_size, self.is_optional, self.has_optional_elements),
        )


@dataclass(frozen=True, kw_only=True)
class Overload:
    """One declaration for which code is generated."""

    declaration: Declaration
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        assert len(names) == len(set(names)), f"{self.schema}: a parameter name twice"
        assert any(parameter.is_out for parameter in self.parameters), f"{self.schema}: no out"

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """All parameters but the trailing outs. The target of an in-place operator is an input."""
        end = len(self.parameters)
        while end and self.parameters[end - 1].is_out:
            end -= 1
        return self.parameters[:end]

    @property
    def outs(self) -> tuple[Parameter, ...]:
        return self.parameters[len(self.inputs) :]

    @property
    def positional_inputs(self) -> tuple[Parameter, ...]:
        """The inputs before the first that is given by name only."""
        return tuple(itertools.takewhile(lambda each: not each.is_keyword_only, self.inputs))

    @property
    def default_count(self) -> int:
        """The number of trailing inputs that have a default, which a call may omit."""
        defaults = [parameter.aten_default is not None for parameter in reversed(self.inputs)]
        return [*defaults, False].index(False)

    @property
    def schema(self) -> Schema:
        return self.declaration.schema


@dataclass(frozen=True, kw_only=True)
class Operator:
    """All overloads of one ATen base name, in the order in which a call tries them."""

    name: str
    class_name: str
    overloads: tuple[Overload, ...]


@dataclass(frozen=True, kw_only=True)
class Base:
    """A hand-written base: its location, and the overload that implementations register for."""

    where: str  # "src/base/gemm.h:12"
    overload: Overload


@dataclass(frozen=True, kw_only=True)
class SkippedOverload:
    """An overload that is not generated. ``overload_name`` is "" for a name that torch lacks."""

    aten_name: str
    overload_name: str
    reason: SkipReason


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """The operators that a build was narrowed to, and how many overloads the full build has."""

    asked: str  # the value of the variable
    operators: tuple[str, ...]  # ATen base names, and names of hand-written operators
    overloads: int  # of the PyTorch backend in a full build


@dataclass(frozen=True, kw_only=True)
class Library:
    """Everything one run generates."""

    torch_version: str
    operators: tuple[Operator, ...]
    skipped: tuple[SkippedOverload, ...]
    native: tuple[Operator, ...] = ()  # operators of the build that torch does not have
    narrowing: Narrowing | None = None

    @property
    def overloads(self) -> tuple[Overload, ...]:
        """The overloads of all operators, in order."""
        return tuple(overload for operator in self.operators for overload in operator.overloads)

    @property
    def all_operators(self) -> list[Operator]:
        """The generated and the native operators, sorted by name."""
        return sorted(self.operators + self.native, key=lambda operator: operator.name)
