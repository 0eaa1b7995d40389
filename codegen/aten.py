"""Reads the ATen schemas of the installed torch, through torchgen's own model.

Nothing is downloaded and no schema is parsed here: ``native_functions.yaml`` comes with the
``torchgen`` package of every torch wheel, so what is generated always matches the headers
that it is compiled against.
"""

from __future__ import annotations

import ast
import importlib.machinery
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.errors import GenerationError
from codegen.model import Default, Kind, Overload, Parameter, SkipReason
from codegen.names import parameter_name

if TYPE_CHECKING:
    from torchgen.model import Argument, NativeFunction, Type


@dataclass(frozen=True, kw_only=True)
class Schemas:
    """The functions of one torch that write into their arguments, by ATen base name."""

    torch_version: str
    by_name: dict[str, list[NativeFunction]]


def load_schemas(torch_root: Path | None = None) -> Schemas:
    """Reads the schemas of the torch installed in this Python, or under ``torch_root``.

    ``torch_root`` is a site-packages folder. Raises ``GenerationError`` without a torch.
    """
    packages = _find_packages(torch_root)
    # First, so that torchgen is the one beside the headers. What else the generator needs
    # (an isolated build has its own Jinja2 and PyYAML) is imported already.
    sys.path.insert(0, str(packages["torchgen"].parent))
    from torchgen.gen import parse_native_yaml
    from torchgen.model import SchemaKind

    native = packages["torchgen"] / "packaged" / "ATen" / "native"
    functions = parse_native_yaml(
        str(native / "native_functions.yaml"), str(native / "tags.yaml")
    ).native_functions
    writing = (SchemaKind.out, SchemaKind.inplace)
    by_name: dict[str, list[NativeFunction]] = {}
    for function in functions:
        if function.func.kind() in writing:
            by_name.setdefault(str(function.func.name.name), []).append(function)
    return Schemas(torch_version=_torch_version(packages["torch"]), by_name=by_name)


def _find_packages(torch_root: Path | None) -> dict[str, Path]:
    found = {}
    for name in ("torch", "torchgen"):
        where = [str(torch_root)] if torch_root else None
        spec = importlib.machinery.PathFinder.find_spec(name, where)
        if spec is None or not spec.submodule_search_locations:
            raise GenerationError(
                f"no {name} in {torch_root or sys.executable}; expected torch to be installed. "
                "Install it there, or pass --torch-root SITE_PACKAGES"
            )
        found[name] = Path(spec.submodule_search_locations[0])
    return found


def _torch_version(torch: Path) -> str:
    """``torch.__version__`` from torch/version.py, without the second that importing costs."""
    for node in ast.parse((torch / "version.py").read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if "__version__" in names and isinstance(node, ast.Assign):
            return str(ast.literal_eval(node.value))
    raise GenerationError(f"{torch / 'version.py'}: expected an assignment to __version__")


def overload_of(function: NativeFunction) -> Overload | SkipReason:
    """Translates one torchgen function, or says why it cannot be."""
    parameters = []
    # Schema order, outs last: the parameter order of ``at::_ops::*::call``.
    for argument in function.func.arguments.flat_all:
        parameter = _parameter_of(argument)
        if isinstance(parameter, SkipReason):
            return parameter
        parameters.append(parameter)
    return Overload(
        aten_name=str(function.func.name.name),
        overload_name=function.func.name.overload_name,
        schema=str(function.func),
        header=function.root_name,
        function=function.func.name.unambiguous_name(),
        parameters=tuple(parameters),
    )


def _parameter_of(argument: Argument) -> Parameter | SkipReason:
    from torchgen.model import ListType, OptionalType

    unwrapped: Type = argument.type
    is_optional = isinstance(unwrapped, OptionalType)
    if isinstance(unwrapped, OptionalType):
        unwrapped = unwrapped.elem
    list_size = None
    has_optional_elements = False
    if isinstance(unwrapped, ListType):
        list_size = unwrapped.size or 0
        unwrapped = unwrapped.elem
        has_optional_elements = isinstance(unwrapped, OptionalType)
        if isinstance(unwrapped, OptionalType):
            unwrapped = unwrapped.elem
    kind = _kind_of(str(unwrapped))
    if isinstance(kind, SkipReason):
        return kind
    return Parameter(
        name=parameter_name(argument.name),
        aten_type=str(argument.type),
        aten_default=argument.default,
        kind=kind,
        list_size=list_size,
        is_optional=is_optional,
        has_optional_elements=has_optional_elements,
        is_out=argument.annotation is not None and argument.annotation.is_write,
        default=_parse_default(argument.default),
    )


_KINDS: dict[str, Kind | SkipReason] = {
    "Tensor": Kind.TENSOR,
    "Scalar": Kind.SCALAR,
    "int": Kind.INT,
    "SymInt": Kind.INT,
    "DeviceIndex": Kind.INT,
    "float": Kind.FLOAT,
    "bool": Kind.BOOL,
    "SymBool": Kind.BOOL,
    "str": Kind.STRING,
    "ScalarType": Kind.DATA_TYPE,
    "Layout": Kind.LAYOUT,
    "MemoryFormat": Kind.MEMORY_FORMAT,
    "Device": Kind.DEVICE,
    "Generator": Kind.GENERATOR,
    "Dimname": SkipReason.DIMNAME,
    "Storage": SkipReason.STORAGE,
    "Stream": SkipReason.STREAM,
    "QScheme": SkipReason.QSCHEME,
}


def _kind_of(base_type: str) -> Kind | SkipReason:
    kind = _KINDS.get(base_type)
    if kind is None:
        raise GenerationError(
            f"ATen type '{base_type}' is unknown to the generator; "
            f"expected one of {', '.join(_KINDS)}. Add it to codegen/aten.py"
        )
    return kind


# Enumerators that schemas use as defaults: at::Reduction and c10::MemoryFormat.
_NAMED_DEFAULTS = {"Mean": 1, "contiguous_format": 0}


def _parse_default(text: str | None) -> Default:
    if text is None or text == "None":
        return None
    if text in _NAMED_DEFAULTS:
        return _NAMED_DEFAULTS[text]
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        raise GenerationError(
            f"schema default '{text}' is unknown to the generator; "
            "expected a literal. Add it to codegen/aten.py"
        ) from None
    if isinstance(value, list):
        return tuple(int(element) for element in value)
    assert isinstance(value, bool | int | float | str), text
    return value
