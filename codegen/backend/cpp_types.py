"""Compares spellings of the types of torch's kernels, where no compiler compares them."""

from __future__ import annotations

from typing import NamedTuple

from codegen.backend.cpp_source import Words, words

_NAMESPACES = ("at", "c10", "std", "torch")
_IGNORED = frozenset({"volatile", "struct", "class", "typename", "enum"})
# Types for which torch's headers define other names.
_ALIASES_IN_TORCH = {
    name: words(spelled)
    for name, spelled in {
        "IntArrayRef": "ArrayRef<int64_t>",
        "SymIntArrayRef": "ArrayRef<SymInt>",
        "OptionalIntArrayRef": "OptionalArrayRef<int64_t>",
        "OptionalSymIntArrayRef": "OptionalArrayRef<SymInt>",
        "TensorList": "ArrayRef<Tensor>",
        "ITensorListRef": "IListRef<Tensor>",
        "DimnameList": "ArrayRef<Dimname>",
        "DeviceIndex": "int8_t",
        "Dtype": "ScalarType",
    }.items()
}
_KNOWN = frozenset(
    words(
        "Tensor Scalar SymInt ArrayRef OptionalArrayRef IListRef List optional Storage Generator"
        " Stream Device DeviceType Layout MemoryFormat ScalarType Dimname QScheme string"
        " string_view byte tuple vector array pair int8_t int32_t int64_t bool double float int"
        " long short unsigned signed char void & && * < > , 1 2 3 4"
    )
)
_MOST_WORDS = 64  # of a return type and what precedes it


class Type(NamedTuple):
    """A type of which the usual spellings are equal."""

    words: Words
    is_const: bool = False

    def unclear(self) -> str:
        """The first word without a known meaning, such as a macro or an alias; or ""."""
        return next((word for word in self.words if word not in _KNOWN), "")


def parameter_type(spelled: Words) -> Type:
    """Read a parameter, with or without a name after its type."""
    words, is_const = normalize(spelled)
    if words[1:] and words[-1].isidentifier() and words[-1] not in _KNOWN and words[-2] != "::":
        words = words[:-1]
    # The signature of a function does not have the const of a value.
    return Type(words, is_const and not {"&", "*", "&&"}.isdisjoint(words))


def return_type(head: Words, expected: Type) -> tuple[Type, Words]:
    """Read the return type at the end of ``head``, and return the specifiers before it too."""
    for start in range(max(0, len(head) - _MOST_WORDS), len(head)):
        if (found := Type(*normalize(head[start:]))) == expected:
            return found, head[:start]
    return Type(*normalize(head)), ()


def normalize(spelled: Words) -> tuple[Words, bool]:
    """Leave out torch's namespaces and, as the second value, the outermost const."""
    normal: list[str] = []
    depth, is_const = 0, False
    for word in spelled:
        depth += (word == "<") - (word == ">")
        if word == "::" and normal[-1:] and normal[-1] in _NAMESPACES:
            normal.pop()
        elif word == "const" and depth == 0:
            is_const = True
        elif word not in _IGNORED and (word != "::" or (normal and normal[-1] not in _KNOWN)):
            number = word.rstrip("uUlL") if word[:1].isdigit() else word
            normal += _ALIASES_IN_TORCH.get(word, (number,))
    return tuple(normal), is_const
