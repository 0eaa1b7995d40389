"""YAML as nodes, which know their lines."""

from __future__ import annotations

from pathlib import Path

import yaml

from codegen.errors import GenerationError, quoted

_TAG_PREFIX = "tag:yaml.org,2002:"
LARGEST = 2**20  # bytes; all 3,101 operators of torch 2.13 in one list are a tenth of that
_EXPECTED = "expected the YAML file of a backend"
_KINDS = {"seq": yaml.SequenceNode, "map": yaml.MappingNode}


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def is_plain(node: yaml.Node, tag: str) -> bool:
    """True for a node of a type of YAML's own: ``str``, ``bool``, ``null``, ``seq`` or ``map``."""
    # A tag that is written out may stand before anything: `!!str [abs]`.
    kind = _KINDS.get(tag, yaml.ScalarNode)
    return bool(node.tag == f"{_TAG_PREFIX}{tag}" and isinstance(node, kind))


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
    if not isinstance(node, yaml.ScalarNode) or not node.tag.startswith(_TAG_PREFIX):
        return f"a value of the type {quoted(_short_tag(node))}"
    if is_plain(node, "str"):
        return quoted(node.value)
    kind = {"bool": "boolean", "int": "number", "float": "number", "timestamp": "date"}
    name = kind.get(node.tag.removeprefix(_TAG_PREFIX))
    if name is None:
        return f"a value of the type {quoted(_short_tag(node))}"
    return f"the {name} {quoted(node.value)[1:-1]}"


def _short_tag(node: yaml.Node) -> str:
    tag = str(node.tag)
    return f"!!{tag.removeprefix(_TAG_PREFIX)}" if tag.startswith(_TAG_PREFIX) else tag
