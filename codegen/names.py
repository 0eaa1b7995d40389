"""Public names of ATen operators."""

from __future__ import annotations

import keyword
import re

INTERNAL_PREFIX = "internal_"
INPLACE_SUFFIX = "_inplace"

# What the library itself has in these scopes: an operator of a fork must not replace it.
RESERVED_NAMES = frozenset(  # of `infini.ops`
    {"devices", "include_dir", "last_call", "metadata_path", "native_metadata_path", "platforms"}
)
RESERVED_CLASS_NAMES = frozenset(  # of C++ `infini::ops`, and of `infini.ops`
    {
        *("Argument", "Call", "CallOptions", "ClearCacheOf", "DataType", "Device"),
        *("DeviceType", "DeviceTypeInfo", "Implementation", "Invocation", "Kernel", "Layout"),
        *("MemoryFormat", "Operator", "OperatorBase", "OperatorEntry", "Overload", "Parameter"),
        *("Platform", "Predicate", "Registration", "Scalar", "Slot", "Span", "SupportsOf"),
        *("Tensor", "Unpacked"),
    }
)
# Keyword parameters of every operator, and local names of the generated `Call`.
RESERVED_PARAMETERS = frozenset({"implementation_index", "stream", "options", "overload"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def public_name(aten_name: str, *, inplace: bool) -> str:
    """The name that an ATen base name has in ``infini.ops``.

    Leading underscores become ``internal_`` and the trailing underscore of an in-place
    operator ``_inplace``: ``_softmax`` is ``internal_softmax``, ``abs_`` ``abs_inplace``,
    ``__iand__`` ``internal_iand_inplace``.
    """
    core = aten_name.strip("_")
    prefix = INTERNAL_PREFIX if aten_name.startswith("_") else ""
    return f"{prefix}{core}{INPLACE_SUFFIX if inplace else ''}"


def class_name(name: str) -> str:
    """Pascal case of a public name: ``log_softmax`` is ``LogSoftmax``."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def parameter_name(aten_argument: str) -> str:
    """ATen's ``self`` is spelled ``input``; a name that is taken gets a trailing underscore.

    C++ keywords can't come: torch's own headers have the names of its schemas.
    """
    if aten_argument == "self":
        return "input"
    is_taken = aten_argument in RESERVED_PARAMETERS or keyword.iskeyword(aten_argument)
    return f"{aten_argument}_" if is_taken else aten_argument


def is_identifier(name: str) -> bool:
    """True for a name of the form that Python and C++ both take."""
    return _IDENTIFIER.fullmatch(name) is not None
