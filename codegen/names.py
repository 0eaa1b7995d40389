"""Public names of ATen operators."""

from __future__ import annotations

import keyword

INTERNAL_PREFIX = "internal_"
INPLACE_SUFFIX = "_inplace"


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
    """ATen's ``self`` is spelled ``input``; a Python keyword gets a trailing underscore."""
    if aten_argument == "self":
        return "input"
    return f"{aten_argument}_" if keyword.iskeyword(aten_argument) else aten_argument
