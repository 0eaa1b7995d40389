"""Reads the ATen schemas of a torch installation through its own torchgen.

Nothing is downloaded and no schema is parsed here. ``native_functions.yaml`` is part of the
``torchgen`` package in every torch wheel, so the generated code always matches the headers that it
is compiled against. Only ``native_functions`` exposes torchgen's types. Everything else that this
module returns uses the types of ``codegen.model``.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from codegen.errors import GenerationError
from codegen.model import Argument, Declaration, Return, Schema, Schemas, Type

if TYPE_CHECKING:
    import torchgen.model as torchgen_model

# Kinds of functions that write into their arguments. "scratch" is an out= function with workspace
# arguments.
_WRITING = ("out", "inplace", "scratch")


@dataclass(frozen=True, kw_only=True)
class Torch:
    """Location of a torch installation: the torch package and the torchgen package beside it."""

    torch: Path
    torchgen: Path

    @property
    def version_file(self) -> Path:
        return self.torch / "version.py"

    @property
    def schema_file(self) -> Path:
        return self.torchgen / "packaged" / "ATen" / "native" / "native_functions.yaml"

    @property
    def tags_file(self) -> Path:
        return self.schema_file.with_name("tags.yaml")


def find_torch(root: Path | None = None) -> Torch:
    """Find torch in this Python, or in the site-packages folder ``root``.

    Raises ``GenerationError`` if there is none.
    """
    found = {}
    for name in ("torch", "torchgen"):
        spec = importlib.machinery.PathFinder.find_spec(name, [str(root)] if root else None)
        if spec is not None and spec.origin and not spec.submodule_search_locations:
            raise GenerationError(
                f"{name} in {root or sys.executable}: got the file {spec.origin}, expected a "
                "package. Rename the file, or pass --torch-root SITE_PACKAGES"
            )
        if spec is None or not spec.submodule_search_locations:
            raise GenerationError(
                f"no {name} in {root or sys.executable}; expected torch to be installed. "
                "Install it there, or pass --torch-root SITE_PACKAGES"
            )
        found[name] = Path(spec.submodule_search_locations[0])
    return Torch(**found)


def load_schemas(torch: Torch) -> Schemas:
    """Read all schemas; raise ``GenerationError`` for files that torchgen refuses."""
    by_name: dict[str, list[Declaration]] = {}
    with native_functions(torch) as parsed, _translate_errors(torch):
        for function in parsed.functions:
            if function.func.kind().name in _WRITING:
                schema = schema_of(function.func)
                declaration = Declaration(
                    schema=schema,
                    cpp_call=_cpp_call(function),
                    is_inplace=function.func.name.name.inplace,
                    tags=tuple(sorted(function.tags)),
                    line=function.loc.line,
                )
                by_name.setdefault(schema.aten_name, []).append(declaration)
    return Schemas(
        torch_version=parsed.torch_version,
        by_name={name: tuple(declarations) for name, declarations in by_name.items()},
    )


def _cpp_call(function: torchgen_model.NativeFunction) -> str:
    """Declare ``at::_ops::*::call`` of the function, as torchgen does in ATen's headers."""
    from torchgen.api.types import DispatcherSignature
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        try:
            return str(DispatcherSignature.from_schema(function.func).decl(name="call"))
        except KeyError:  # a type without a C++ type, of a fork: not generated
            return ""


@dataclass(frozen=True, kw_only=True)
class NativeFunctions:
    """All functions of a torch in torchgen's model, for code that uses torchgen's C++ emitters."""

    torch_version: str
    functions: tuple[torchgen_model.NativeFunction, ...]
    # The in-tree kernels by dispatch key.
    backend_indices: Mapping[torchgen_model.DispatchKey, torchgen_model.BackendIndex]

    @functools.cached_property  # finding the groups takes a third of a second
    def grouped(
        self,
    ) -> tuple[torchgen_model.NativeFunction | torchgen_model.NativeFunctionsGroup, ...]:
        """All functions; the variants of one operator (functional, out=, in-place) form a group."""
        from torchgen.gen import get_grouped_native_functions

        return tuple(get_grouped_native_functions(self.functions))

    @functools.cached_property
    def groups(self) -> Mapping[str, torchgen_model.NativeFunctionsGroup]:
        """The group of each function that belongs to one."""
        from torchgen.model import NativeFunctionsGroup

        return {
            str(function.func.name): group
            for group in self.grouped
            if isinstance(group, NativeFunctionsGroup)
            for function in group.functions()
        }

    @functools.cached_property
    def by_base(self) -> Mapping[str, Sequence[torchgen_model.NativeFunction]]:
        """The functions of each base name; that of an in-place one has no underscore."""
        found: dict[str, list[torchgen_model.NativeFunction]] = {}
        for function in self.functions:
            found.setdefault(function.func.name.name.base, []).append(function)
        return found

    @functools.cached_property
    def overloads(self) -> Mapping[str, Sequence[str]]:
        """The full names of each name; `add_` is another name than `add`."""
        found: dict[str, list[str]] = {}
        for full_name in self.by_name:
            found.setdefault(full_name.partition(".")[0], []).append(full_name)
        return found

    @functools.cached_property
    def by_name(self) -> Mapping[str, torchgen_model.NativeFunction]:
        return {str(function.func.name): function for function in self.functions}


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function of torch of any kind, and what native_functions.yaml says of it."""

    schema: Schema
    kind: str  # torchgen's: functional, inplace, out, mutable or scratch
    is_view: bool
    is_composite: bool  # made of other operators on every device
    kernels: Mapping[str, str]  # C++ function by dispatch key
    twins: tuple[str, ...]  # out= and in-place functions of the same signature; of a view, its copy
    tags: tuple[str, ...]
    line: int

    @property
    def writes(self) -> bool:
        """True for a function that the generator looks at: out= or in-place."""
        return self.kind in _WRITING


def describe_functions(
    parsed: NativeFunctions, wanted: Callable[[torchgen_model.NativeFunction], bool]
) -> list[Function]:
    """The ``wanted`` functions, in the order of native_functions.yaml."""
    return [_describe(parsed, each) for each in parsed.functions if wanted(each)]


def _describe(parsed: NativeFunctions, function: torchgen_model.NativeFunction) -> Function:
    func = function.func
    kernels = {
        str(key): f"{metadata.cpp_namespace}::{metadata.kernel}"
        for key, index in parsed.backend_indices.items()
        if (metadata := index.get_kernel(function))
    }
    bases = {func.name.name.base, f"{func.name.name.base}_copy"} if function.is_view_op else None
    signature = func.signature()
    twins = [
        each
        for base in sorted(bases or {func.name.name.base})
        for each in parsed.by_base.get(base, ())
        if each.func.kind().name in _WRITING
        and each.func.name != func.name
        and (bases is not None or each.func.signature() == signature)
    ]
    return Function(
        schema=schema_of(func),
        kind=func.kind().name,
        is_view=function.is_view_op,
        is_composite=function.has_composite_implicit_autograd_kernel,
        kernels=kernels,
        twins=tuple(str(each.func.name) for each in twins),
        tags=tuple(sorted(function.tags)),
        line=function.loc.line,
    )


@contextlib.contextmanager
def native_functions(torch: Torch) -> Iterator[NativeFunctions]:
    """Provide the functions of ``torch``; within it, ``import torchgen`` gets this torch's own.

    Raises ``GenerationError`` for files that torchgen refuses.
    """
    with _import_torchgen_from(torch.torchgen):
        with _translate_errors(torch):
            from torchgen.gen import parse_native_yaml

            parsed = parse_native_yaml(str(torch.schema_file), str(torch.tags_file))
        yield NativeFunctions(
            torch_version=_torch_version(torch),
            functions=tuple(parsed.native_functions),
            backend_indices=parsed.backend_indices,
        )


@contextlib.contextmanager
def _import_torchgen_from(package: Path) -> Iterator[None]:
    """Make ``import torchgen`` import the package in this folder, even if another one is loaded."""
    earlier = _loaded_torchgen()
    if "torchgen" in earlier and str(package) in earlier["torchgen"].__path__:
        yield
        return
    for name in earlier:
        del sys.modules[name]
    # Appended last: only modules that torchgen needs and this Python lacks are imported from this
    # folder.
    sys.path.append(str(package.parent))
    try:
        spec = importlib.machinery.PathFinder.find_spec("torchgen", [str(package.parent)])
        assert spec is not None
        assert spec.loader is not None
        sys.modules["torchgen"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["torchgen"])
        yield
    finally:
        sys.path.remove(str(package.parent))
        for name in _loaded_torchgen():
            del sys.modules[name]
        sys.modules.update(earlier)


def _loaded_torchgen() -> dict[str, ModuleType]:
    return {
        name: module for name, module in sys.modules.items() if name.split(".")[0] == "torchgen"
    }


@contextlib.contextmanager
def _translate_errors(torch: Torch) -> Iterator[None]:
    """Turn any exception of torchgen, mostly ``AssertionError``, into a ``GenerationError``."""
    try:
        yield
    except OSError as error:
        raise GenerationError(
            f"{error.filename}: {error.strerror}; expected the schemas of torch. Reinstall torch"
        ) from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("torchgen"):
            raise  # a missing dependency, reported by the command line
        raise GenerationError(_format_error(torch, error)) from None


def _format_error(torch: Torch, error: Exception) -> str:
    """Format torchgen's error on one line, after the file and line that it names."""
    mark = getattr(error, "problem_mark", None)  # of a YAML error
    if mark is not None:
        problem = getattr(error, "problem", error)
        return f"{mark.name}:{mark.line + 1}: not YAML: {problem}. Reinstall torch"
    complaint = f"{type(error).__name__}: {error}"
    located = re.search(r"\n\s*in (?P<where>.+:\d+):\n\s*(?P<schema>.+)", complaint)
    if located:
        where, what = located["where"], f"'{located['schema']}'"
        complaint = complaint[: located.start()]
    else:
        where, what = str(torch.schema_file), "it"
    return (
        f"{where}: torchgen refuses {what}: {' '.join(complaint.split())}; expected schemas "
        f"that {torch.torchgen} can read. Reinstall torch"
    )


def _torch_version(torch: Torch) -> str:
    """Read ``torch.__version__`` from torch/version.py; importing torch would take a second.

    A fork's file may compute it. Then the version of the installed distribution applies.
    """
    try:
        statements = ast.parse(torch.version_file.read_bytes()).body
    except (SyntaxError, ValueError):
        statements = []
    assigned = [
        each.value.value
        for each in statements
        if isinstance(each, ast.Assign | ast.AnnAssign)
        and isinstance(each.value, ast.Constant)
        and "__version__"
        in map(ast.unparse, each.targets if isinstance(each, ast.Assign) else [each.target])
    ]
    if assigned and isinstance(assigned[-1], str):
        return assigned[-1]
    for found in importlib.metadata.distributions(name="torch", path=[str(torch.torch.parent)]):
        return found.version
    raise GenerationError(
        f"{torch.version_file}: expected a string assigned to __version__, or torch-*.dist-info in "
        f"{torch.torch.parent}. Reinstall torch"
    )


def schema_of(parsed: torchgen_model.FunctionSchema) -> Schema:
    """Convert torchgen's schema to ours. The text of both is the same."""
    arguments = parsed.arguments
    positional = [_argument_of(each, keyword_only=False) for each in arguments.flat_positional]
    # Outs come last, both in the schema text and in the parameters of ``at::_ops::*::call``.
    keywords = [*arguments.flat_kwarg_only, *arguments.out]
    return Schema(
        aten_name=str(parsed.name.name),
        overload_name=parsed.name.overload_name,
        arguments=(*positional, *(_argument_of(each, keyword_only=True) for each in keywords)),
        returns=tuple(
            Return(
                name=each.name,
                type=_type_of(each.type),
                annotation=str(each.annotation) if each.annotation else None,
            )
            for each in parsed.returns
        ),
    )


def _argument_of(argument: torchgen_model.Argument, *, keyword_only: bool) -> Argument:
    return Argument(
        name=argument.name,
        type=_type_of(argument.type),
        annotation=str(argument.annotation) if argument.annotation else None,
        default=argument.default,
        keyword_only=keyword_only,
    )


def _type_of(given: torchgen_model.Type) -> Type:
    from torchgen.model import ListType, OptionalType

    is_optional = isinstance(given, OptionalType)
    unwrapped = given.elem if isinstance(given, OptionalType) else given
    if not isinstance(unwrapped, ListType):
        return Type(base=str(unwrapped), is_optional=is_optional)
    element = unwrapped.elem
    has_optional_elements = isinstance(element, OptionalType)
    return Type(
        base=str(element.elem if isinstance(element, OptionalType) else element),
        list_size=unwrapped.size or 0,
        is_optional=is_optional,
        has_optional_elements=has_optional_elements,
    )
