"""What is generated, as data: operators, their overloads and their parameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
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
    """Why a selected overload is not generated. Closed: a test holds the vocabulary."""

    DIMNAME = "takes named dimensions"
    STORAGE = "takes a storage"
    STREAM = "takes a stream object"
    QSCHEME = "takes a quantizer scheme"


Default = bool | int | float | str | None | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of an overload.

    ``aten_type`` and ``aten_default`` are the schema's own text; ``default`` is the parsed
    value and means something only where ``aten_default`` is not None.
    """

    name: str
    aten_type: str
    aten_default: str | None
    kind: Kind
    list_size: int | None  # None: no list; 0: any size
    is_optional: bool
    has_optional_elements: bool
    is_out: bool
    default: Default

    @property
    def is_tensor(self) -> bool:
        return self.kind is Kind.TENSOR

    @property
    def is_list(self) -> bool:
        return self.list_size is not None


@dataclass(frozen=True, kw_only=True)
class Overload:
    """One ATen schema that writes into its arguments: an ``out=`` or an in-place one."""

    aten_name: str
    overload_name: str
    schema: str
    header: str  # "abs": ATen/ops/abs_ops.h declares it
    function: str  # "abs_out": at::_ops::abs_out is it
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        assert len(names) == len(set(names)), f"{self.schema}: a parameter name twice"
        assert any(parameter.is_out for parameter in self.parameters), f"{self.schema}: no out"

    @property
    def inputs(self) -> tuple[Parameter, ...]:
        """All but the trailing outs; what an in-place operator writes is among them."""
        end = len(self.parameters)
        while end and self.parameters[end - 1].is_out:
            end -= 1
        return self.parameters[:end]

    @property
    def outs(self) -> tuple[Parameter, ...]:
        return self.parameters[len(self.inputs) :]

    @property
    def default_count(self) -> int:
        """How many of the last inputs have a default, so that a call may leave them out."""
        defaults = [parameter.aten_default is not None for parameter in reversed(self.inputs)]
        return [*defaults, False].index(False)

    @property
    def full_name(self) -> str:
        return f"{self.aten_name}.{self.overload_name}" if self.overload_name else self.aten_name


@dataclass(frozen=True, kw_only=True)
class Operator:
    """All overloads of one ATen base name, in schema order."""

    name: str
    class_name: str
    overloads: tuple[Overload, ...]


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A selected overload that is not generated."""

    aten_name: str
    overload_name: str
    reason: SkipReason


@dataclass(frozen=True, kw_only=True)
class Library:
    """Everything one run generates."""

    torch_version: str
    operators: tuple[Operator, ...]
    skipped: tuple[Skipped, ...]
