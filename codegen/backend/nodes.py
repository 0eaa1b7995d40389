"""The YAML file of a backend as nodes, and findings about them."""

from __future__ import annotations

from pathlib import Path

import yaml

from codegen.backend.known import quoted
from codegen.errors import GenerationError
from codegen.nodes import TAG_PREFIX, is_plain

LARGEST = 2**20  # bytes; all 3,101 operators of torch 2.13 in one list are a tenth of that
_EXPECTED = "expected the YAML file of a backend"


def compose(path: Path) -> yaml.Node | None:
    """The root of the only document in the file; ``GenerationError`` for what is not YAML.

    Nothing is constructed from the nodes, and aliases are the nodes that they stand for.
    """
    text = _text(path)
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise GenerationError(f"{path}:{line}: not YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise GenerationError(
            f"{path}:{line}: not YAML: got the character U+{error.character:04X}; remove it"
        ) from None
    except RecursionError:
        raise GenerationError(
            f"{path}: got hundreds of lists or mappings inside each other; {_EXPECTED}"
        ) from None
    return root


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise GenerationError(f"{path}: {error.strerror}; {_EXPECTED}") from None
    if len(content) > LARGEST:
        raise GenerationError(f"{path}: got more than {LARGEST:,} bytes; {_EXPECTED}")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise GenerationError(
            f"{path}:{line}: got the byte 0x{byte:02X}, expected UTF-8. Save the file as UTF-8"
        ) from None


def described(node: yaml.Node) -> str:
    """What stands there, after "got"."""
    if is_plain(node, "null"):
        return "nothing"
    if is_plain(node, "seq"):
        return "a list"
    if is_plain(node, "map"):
        return "a mapping"
    if not isinstance(node, yaml.ScalarNode) or not node.tag.startswith(TAG_PREFIX):
        return f"a value of the type {quoted(_short_tag(node))}"
    if is_plain(node, "str"):
        return quoted(node.value)
    kind = {"bool": "boolean", "int": "number", "float": "number", "timestamp": "date"}
    name = kind.get(node.tag.removeprefix(TAG_PREFIX))
    if name is None:
        return f"a value of the type {quoted(_short_tag(node))}"
    return f"the {name} {quoted(node.value)[1:-1]}"


def _short_tag(node: yaml.Node) -> str:
    tag = str(node.tag)
    return f"!!{tag.removeprefix(TAG_PREFIX)}" if tag.startswith(TAG_PREFIX) else tag


class Findings:
    """All that is wrong with one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._findings: list[tuple[int, str]] = []

    def add(self, line: int, text: str) -> None:
        self._findings.append((line, text))

    def raise_all(self) -> None:
        """Raises ``GenerationError`` if there are any: one per line, in the order of the file."""
        if self._findings:
            ordered = sorted(self._findings, key=lambda finding: finding[0])
            raise GenerationError(
                "\n".join(f"{self._path}:{line}: {text}" for line, text in ordered)
            )
