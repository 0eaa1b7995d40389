"""Operators that write into their outputs, on every device this library was built for.

``infini.ops.abs(x, out)`` calls an operator, ``help(infini.ops.abs)`` shows its overloads and
slots, and ``infini.ops.Abs`` is what can be asked of it. All are made on first use from the
operator table of the compiled library, so importing costs the same however many operators
there are.
"""

# Imports are private: operators and their classes take any public name (`Any`, for one).
import contextlib as _contextlib
import pathlib as _pathlib
import typing as _typing

with _contextlib.suppress(ModuleNotFoundError):
    # First, so that the libraries that the compiled module needs are loaded from it.
    import torch as _torch  # noqa: F401

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
    """Base of the operator classes, ``infini.ops.Abs`` for instance."""

    name: str

    @classmethod
    def active_implementation_indices(cls, device: str) -> list[int]:
        """The slots that implement this operator on ``device``, ascending.

        ``device`` is a platform ("cpu", "nvidia") or torch's name for it ("cuda", or a
        ``torch.device``). Raises ``ValueError`` for one that this build does not have.
        """
        return _core.active_implementation_indices(cls.name, str(device).partition(":")[0])

    @classmethod
    def clear_cache(cls) -> None:
        """Drops what implementations keep between calls: handles, plans, workspaces."""
        _core.clear_cache(cls.name)


class Call(_typing.NamedTuple):
    """What a call ran: the implementation of an operator's overload at one slot for one device."""

    operator: str
    overload: str  # ATen's name of it, "" or "out" for instance
    device: str  # the platform, as in ``devices()``
    slot: int


def last_call() -> Call | None:
    """What this thread's last call ran, whether it succeeded or raised; None before the first.

    A call that finds no implementation runs none and leaves the one before it.
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
    torch_plugin: str | None  # the module that brings torch the type; None where torch has it


def platforms() -> list[Platform]:
    """All that the library can be built for, whatever this build supports."""
    return [Platform(*platform) for platform in _core.platforms()]


def metadata_path() -> _pathlib.Path:
    """``torch_ops_metadata.json``: the generated operators; absent in a build without torch."""
    return _PACKAGE / "torch_ops_metadata.json"


def native_metadata_path() -> _pathlib.Path:
    """``native_ops_metadata.json``: the hand-written operators, and what is at which slot."""
    return _PACKAGE / "native_ops_metadata.json"


def include_dir() -> _pathlib.Path:
    """The folder to include the C++ headers from."""
    return _PACKAGE / "include"


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


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
        raise AttributeError(f"module '{__name__}' has no operator '{attribute}'")
    globals()[attribute] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES, *_CLASSES})
