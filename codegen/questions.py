"""The ways in which a person names an operator: ``torch.add``, ``aten::add.out``, ``F.conv2d``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

# Longer prefixes first.
_PREFIX = re.compile(
    r"(?:torch\.ops\.aten|torch\.nn\.functional|nn\.functional|torch\._C\._nn|torch\.Tensor"
    r"|infini\.ops|infini::ops|at::native|at::_ops|torch|aten|Tensor|at|F)(?:\.|::)"
)
_MODULE = re.compile(r"^(linalg|fft|special|sparse|nested)\.")
_DUNDER = re.compile(r"__(?P<how>[ir]?)(?P<name>[a-z]+)__")
# Python's operators whose name is not ATen's.
_OPERATORS = {
    "floordiv": "floor_divide",
    "getitem": "index",
    "invert": "bitwise_not",
    "mod": "remainder",
    "setitem": "index_put_",
    "truediv": "div",
}
# Python functions of torch that only call an ATen function of another name.
_PYTHON_NAMES = {"cross_entropy": "cross_entropy_loss"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A name without its decoration, and the overload if it names one."""

    name: str
    overload: str | None = None  # "": the overload without a name; None: all overloads

    @property
    def full_name(self) -> str:
        return ".".join(filter(None, (self.name, self.overload)))


def parse_question(text: str) -> Question:
    """Strip what says where the operator is: ``torch.ops.aten.mm.default`` is ``mm``."""
    bare = text.strip().removesuffix("()").removesuffix("::call")
    if prefix := _PREFIX.match(bare):
        bare = bare[prefix.end() :]
    bare = _MODULE.sub(r"\1_", bare)
    name, dot, overload = bare.partition(".")
    return Question(
        name=name, overload=("" if overload == "default" else overload) if dot else None
    )


def spellings(name: str, known: Collection[str]) -> Iterator[str]:
    """The names of ATen that ``name`` can stand for, the likeliest first."""
    yield name
    if name in _PYTHON_NAMES:
        yield _PYTHON_NAMES[name]
    if found := _DUNDER.fullmatch(name):
        # Of `__iadd__` and `__invert__`, only one is in-place.
        whole = found["how"] + found["name"]
        yield _OPERATORS.get(whole, whole)
        operator = _OPERATORS.get(found["name"], found["name"])
        in_place = f"{operator}_" if found["how"] == "i" else operator
        yield in_place if in_place in known else operator


@dataclass(frozen=True, kw_only=True)
class Removal:
    """An operator that an earlier torch had."""

    successor: str
    source: str


_REMOVED_IN = "https://github.com/pytorch/pytorch/pull/{}"
REMOVED = {
    name: Removal(successor=successor, source=_REMOVED_IN.format(number))
    for name, successor, number in (
        ("eig", "linalg_eig", 70982),
        ("fft", "fft_fft", 48594),
        ("ifft", "fft_ifft", 48594),
        ("irfft", "fft_irfft", 48594),
        ("lstsq", "linalg_lstsq", 70980),
        ("matrix_rank", "linalg_matrix_rank", 70981),
        ("rfft", "fft_rfft", 48594),
        ("solve", "linalg_solve", 70986),
        ("symeig", "linalg_eigh", 70988),
    )
}
