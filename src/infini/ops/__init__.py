"""Operators that write into their outputs, on every device that this library was built for.

``infini.ops.abs(x, out)`` calls an operator. ``help(infini.ops.abs)`` shows its overloads and
slots. ``infini.ops.Abs`` is its class, with methods such as ``active_implementation_indices``. All
of them are created on first use from the operator table of the compiled library, so the time of an
import does not depend on the number of operators.
"""

# Imports are private, because operators and their classes can have any public name (such as `Any`).
import json as _json
import pathlib as _pathlib
import sys as _sys
import typing as _typing

try:
    # First, so that torch loads the libraries that the compiled module needs, wherever torch is
    # installed: the loader does not search for a library that is already loaded.
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as _error:
    if _pathlib.Path(__file__).with_name("torch_ops_metadata.json").exists():
        raise ImportError(
            f"infini.ops was built with torch, which {_sys.executable} can't import: {_error}. "
            "Install the torch that it was built with, or run the Python that has it"
        ) from _error

from infini.ops import _core

_PACKAGE = _pathlib.Path(__file__).parent
_NAMES = frozenset(_core.operator_names())

__all__ = [
    "Call",
    "Operator",
    "Platform",
    "devices",
    "include_dir",
    "last_call",
    "metadata_path",
    "native_metadata_path",
    "platforms",
    *sorted(_NAMES),
]


class Operator:
    """Base of the operator classes, such as ``infini.ops.Abs``, and of all operators together."""

    name: str

    @classmethod
    def _names(cls) -> _typing.Iterable[str]:
        return _NAMES if cls is Operator else [cls.name]

    @classmethod
    def active_implementation_indices(cls, device: str) -> list[int]:
        """The slots that implement this operator on ``device``, ascending.

        ``device`` is a platform ("cpu", "nvidia") or torch's name for it ("cuda", or a
        ``torch.device``). A platform that this build does not support has no slots. Raises
        ``ValueError`` for a name that is not a platform. On ``Operator`` itself, returns the slots
        of all operators.
        """
        name = str(device).partition(":")[0]
        found = (_core.active_implementation_indices(each, name) for each in cls._names())
        return sorted({slot for slots in found for slot in slots})

    @classmethod
    def slot_for(cls, *arguments: _typing.Any, **keywords: _typing.Any) -> int | None:
        """The slot that a call with these arguments would run, without running it.

        Returns ``None`` if no slot of this build supports the call.
        """
        slot: int | None = _core.operator_function(cls.name).slot_for(*arguments, **keywords)
        return slot

    @classmethod
    def clear_cache(cls) -> None:
        """Free the data that implementations keep between calls: handles, plans, workspaces.

        ``Operator.clear_cache()`` does so for all operators.
        """
        for name in cls._names():
            _core.clear_cache(name)


class Call(_typing.NamedTuple):
    """The implementation that a call ran: an operator's overload at one slot for one device."""

    operator: str
    overload: str  # ATen's overload name, such as "" or "out"
    device: str  # the platform, as in ``devices()``
    slot: int


def last_call() -> Call | None:
    """The last implementation that this thread ran, whether it succeeded or raised; None before.

    A call without an active implementation is not recorded.
    """
    ran = _core.last_call()
    return None if ran is None else Call(*ran)


def devices() -> list[str]:
    """The platforms that this build supports: "cpu" and at most one accelerator."""
    return _core.devices()


class Platform(_typing.NamedTuple):
    """A platform that the library can be built for."""

    name: str
    torch_device: str  # torch's device type, which several platforms can share
    torch_plugin: str | None  # module that registers the type in torch; None if torch has it


def platforms() -> list[Platform]:
    """All platforms that the library can be built for, including those that this build lacks."""
    return [Platform(*platform) for platform in _core.platforms()]


def metadata_path() -> _pathlib.Path:
    """``torch_ops_metadata.json``: the generated operators; absent in a build without torch."""
    return _PACKAGE / "torch_ops_metadata.json"


def native_metadata_path() -> _pathlib.Path:
    """``native_ops_metadata.json``: the hand-written operators and their slots."""
    return _PACKAGE / "native_ops_metadata.json"


def include_dir() -> _pathlib.Path:
    """The folder that C++ programs need in their include path."""
    return _PACKAGE / "include"


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _left_out() -> frozenset[str]:
    """The hand-written operators that this build lacks. No `any`, which can be an operator here."""
    metadata = _json.loads(native_metadata_path().read_text())
    return frozenset(each["name"] for each in metadata["not_selected"])


def _traceable_call(
    function: _typing.Any, *arguments: _typing.Any, **keywords: _typing.Any
) -> None:
    """A call as ``torch.compile`` traces it, and on fake tensors."""
    from infini.ops import torch_library

    torch_library.call(function.__name__, arguments, keywords)


_core.set_traceable_call(_traceable_call)

_CLASSES = {_class_name(name): name for name in _NAMES}


def __getattr__(attribute: str) -> _typing.Any:
    if attribute in _NAMES:
        value: _typing.Any = _core.operator_function(attribute)
    elif attribute in _CLASSES:
        name = _CLASSES[attribute]
        document = f"The operator ``infini.ops.{name}``."
        members = {"name": name, "__doc__": document, "__module__": __name__}
        value = type(attribute, (Operator,), members)
    else:
        reason = ""
        if attribute in _left_out():
            reason = (
                ": this build was made without its implementations (INFINI_OPS_TORCH_OPS, or "
                "WITH_CPU_KERNELS=OFF)"
            )
        raise AttributeError(f"module '{__name__}' has no operator '{attribute}'{reason}")
    globals()[attribute] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_CLASSES})
