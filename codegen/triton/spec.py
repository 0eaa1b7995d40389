"""The operators of ``src/triton/ops`` as their ``build.py`` defines them: requests and variants.

A request is the C struct that the C++ glue code fills. A variant is one kernel of ``kernel.py``,
compiled under assumptions. The generated dispatcher uses the first variant of the target whose
assumptions are true for the request. Most assumptions follow from how the variant is compiled, so
that no author can forget them:

* a parameter or field in ``divisible`` is a multiple of 16 (a pointer: aligned to 16 bytes);
* a constant with the name of a field of the request has the field's value;
* an integer that is passed in fewer than 64 bits fits into them.

``build.py`` contains plain data: the Python that runs it does not need Triton.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from codegen.errors import GenerationError, suggestion
from codegen.triton.worker import explain

_ROOT = Path(__file__).resolve().parents[2]
OPERATORS = _ROOT / "src" / "triton" / "ops"
_DATA_TYPES = _ROOT / "src" / "include" / "infini" / "ops" / "data_type.h"

Constant = bool | int | float | str


class FieldKind(str, Enum):
    """The kind of a field of the request; the value is its type in C."""

    DATA_TYPE = "int"  # a DataType of infini/ops/data_type.h
    POINTER = "void*"
    INTEGER = "int64_t"
    FLOAT = "double"


# Triton's names of the types that kernels take by value -> C types, and the kinds of their fields.
C_TYPES = {
    "i1": "bool",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "fp32": "float",
    "fp64": "double",
}
_POINTER = re.compile(r"\*k?(i1|[iu](8|16|32|64)|fp(16|32|64)|bf16)")

# DataType -> Triton's name of the element type in memory.
TRITON_TYPES = {
    "kFloat16": "fp16",
    "kBFloat16": "bf16",
    "kFloat32": "fp32",
    "kFloat64": "fp64",
    "kUInt8": "u8",
    "kInt8": "i8",
    "kInt16": "i16",
    "kInt32": "i32",
    "kInt64": "i64",
    "kBool": "i1",
}

# Names that expressions can use in addition to fields and constants: functions of
# src/triton/driver.h, and C's own names.
KNOWN = {
    "cdiv": "InfiniOpsCeilDiv",
    "min": "InfiniOpsMin",
    "max": "InfiniOpsMax",
    "INT32_MAX": "INT32_MAX",
}
_NAME = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One kernel, compiled under assumptions. Expressions are C code over fields and constants."""

    name: str  # unique in the operator and target: "float16_aligned"
    kernel: str  # a function of kernel.py
    types: Mapping[str, str]  # type of each passed parameter: "*fp16", "i32", "fp32"
    grid: Sequence[str]  # up to three sizes: "cdiv(count, BLOCK)"; cdiv, min and max are available
    constants: Mapping[str, Constant] = field(default_factory=dict)  # all other parameters
    data_types: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by field: ["kFloat16"]
    divisible: Sequence[str] = ()  # parameters that are multiples of 16
    when: Sequence[str] = ()  # further conditions: "columns <= BLOCK"
    arguments: Mapping[str, str] = field(default_factory=dict)  # parameter -> other field
    num_warps: int = 4
    num_stages: int = 3

    @property
    def numbers(self) -> Mapping[str, int]:
        """The constants that expressions can use."""
        return {name: value for name, value in self.constants.items() if isinstance(value, int)}

    def field_of(self, parameter: str) -> str:
        """The field of the request that is passed for a parameter."""
        return self.arguments.get(parameter, parameter)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """The object named ``OPERATOR`` in ``build.py``."""

    fields: Mapping[str, FieldKind]  # of the request, in order
    # By target (80, 90): the variants, in the order in which the dispatcher tries them.
    variants: Callable[[int], Sequence[Variant]]
    kernels_of: str | None = None  # the operator whose kernel.py it uses, if not its own


def check(operator: Operator, variants: Sequence[Variant], where: str) -> None:
    """Raise ``GenerationError``, starting with ``where``, for an invalid variant."""
    seen: set[str] = set()
    for variant in variants:
        problem = next(_problems(operator, variant), None)
        if variant.name in seen:
            problem = "has the name of another variant; give it a unique name"
        if problem:
            raise GenerationError(f"{where}: variant {variant.name!r} {problem}")
        seen.add(variant.name)
    if not variants:
        raise GenerationError(f"{where}: no variants; expected at least one")


def _problems(operator: Operator, variant: Variant) -> Iterator[str]:
    """The errors in the variant, without its name."""
    if not variant.name.isidentifier():
        yield "is not a C identifier; rename it"
    if not 1 <= len(variant.grid) <= 3:
        yield f"has a grid of {len(variant.grid)} dimensions; expected 1 to 3"
    for parameter, name in variant.types.items():
        source = variant.field_of(parameter)
        kind = operator.fields.get(source)
        if kind is None:
            hint = suggestion(source, operator.fields)
            yield f"takes {source!r}, which is not a field of the request{hint}"
        elif not _is_compatible(name, kind):
            yield f"passes the field {source!r} of kind {kind.name} as the type {name!r}"
        if parameter in variant.constants:
            yield f"has {parameter!r} among both its types and its constants"
    for name, data_types in variant.data_types.items():
        if operator.fields.get(name) is not FieldKind.DATA_TYPE:
            yield f"has data types of {name!r}, which is not a field of kind DATA_TYPE"
        for each in data_types:
            if each not in TRITON_TYPES:
                yield f"has the data type {each!r}{suggestion(each, TRITON_TYPES)}"
    for name in variant.divisible:
        if name not in variant.types:
            yield f"has {name!r} divisible; expected one of {', '.join(variant.types)}"
    known = {*operator.fields, *variant.numbers}
    for expression in (*variant.grid, *variant.when):
        for name in names_used_in(expression):
            if name not in known:
                hint = suggestion(name, known)
                yield f"uses {name!r} in {expression!r}, which is not a field or constant{hint}"


def _is_compatible(name: str, kind: FieldKind) -> bool:
    """True if a field of the kind can be passed as this type of Triton."""
    if kind is FieldKind.POINTER:
        return _POINTER.fullmatch(name) is not None
    of_kind = {FieldKind.INTEGER: "i", FieldKind.FLOAT: "fp"}
    return name in C_TYPES and name.startswith(of_kind.get(kind, "-"))


def names_used_in(expression: str) -> list[str]:
    """The fields and constants that the expression uses."""
    return [name for name in _NAME.findall(expression) if name not in KNOWN]


def substitute(expression: str, values: Mapping[str, str]) -> str:
    """Replace the names in an expression by their values in the generated source."""
    known = {**KNOWN, **values}
    return _NAME.sub(lambda match: known[match[0]], expression)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One folder of ``src/triton/ops``."""

    name: str  # of the operator: "rms_norm"
    folder: Path

    @property
    def build(self) -> Path:
        return self.folder / "build.py"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An operator with its variants for each target, in the order in which they are tried."""

    source: Source
    operator: Operator
    variants: Mapping[int, Sequence[Variant]]

    @property
    def kernel(self) -> Path:
        """The file with the kernels."""
        folder = self.source.folder
        return folder.with_name(self.operator.kernels_of or folder.name) / "kernel.py"


def find_sources(folder: Path) -> list[Source]:
    """Find the operators below ``folder``, sorted by name."""
    folders = sorted({path.parent for path in folder.glob("*/*.*")})
    if not folders:
        raise GenerationError(f"{folder}: no */build.py in it; expected one for each operator")
    sources = [Source(name=each.name, folder=each) for each in folders]
    for source in sources:
        _check_exists(source.build)
    return sources


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise GenerationError(f"{path}: no such file; expected one for each operator")


def read_plan(source: Source, targets: Iterable[int]) -> Plan:
    """Run ``build.py``; its errors are reported with its lines."""
    try:
        module_spec = importlib.util.spec_from_file_location("build", source.build)
        assert module_spec
        assert module_spec.loader
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
        operator: Operator = module.OPERATOR
        variants = {target: tuple(operator.variants(target)) for target in targets}
    except Exception as error:
        message = explain(error, str(source.build))
        raise GenerationError(f"{source.build} failed:\n{message}") from error
    for target, each in variants.items():
        check(operator, each, f"{source.build}, target {target}")
    plan = Plan(source=source, operator=operator, variants=variants)
    _check_exists(plan.kernel)
    return plan


def read_data_types(header: Path = _DATA_TYPES) -> dict[str, int]:
    """Read the enumerators of DataType from a C++ header that generated C sources can't include."""
    found = re.findall(r"^  (k\w+) = (\d+),$", header.read_text(), re.MULTILINE)
    data_types = {name: int(value) for name, value in found}
    if missing := TRITON_TYPES.keys() - data_types.keys():
        raise GenerationError(f"{header}: no {', '.join(sorted(missing))} in it")
    return data_types
