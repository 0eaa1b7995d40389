"""Readers of YAML files that report errors with their lines."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NoReturn

import yaml

from codegen.errors import GenerationError, counted, quote

_TAG_PREFIX = "tag:yaml.org,2002:"
LARGEST = 2**20  # bytes; a list of all 3,101 operators of torch 2.13 takes a tenth of it
MOST_FINDINGS = 50  # shown of one file
_TRAILING_TABS = re.compile(r"(?<=\S)[ \t]*\t[ \t]*(?=\r?$)", re.MULTILINE)
_KINDS = {"seq": yaml.SequenceNode, "map": yaml.MappingNode}
_SCALARS = {"bool": "boolean", "int": "number", "float": "number", "timestamp": "date"}


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def is_plain(node: yaml.Node, tag: str) -> bool:
    """True for a node of a standard YAML type: ``str``, ``bool``, ``null``, ``seq`` or ``map``."""
    # An explicit tag may precede a node of any kind: `!!str [abs]`.
    kind = _KINDS.get(tag, yaml.ScalarNode)
    return bool(node.tag == f"{_TAG_PREFIX}{tag}" and isinstance(node, kind))


def describe_node(node: yaml.Node | None) -> str:
    """Describe a node for a message, after "got"."""
    if node is None or is_plain(node, "null"):
        return "nothing"
    if is_plain(node, "seq"):
        return "a list"
    if is_plain(node, "map"):
        return "a mapping"
    if is_plain(node, "str"):
        return quote(node.value)
    own = str(node.tag).removeprefix(_TAG_PREFIX)
    if isinstance(node, yaml.ScalarNode) and own in _SCALARS:
        return f"the {_SCALARS[own]} {quote(node.value)[1:-1]}"
    return f"a value of the type {quote(own if own == node.tag else f'!!{own}')}"


class Reader:
    """Reads a file that contains a mapping; collects all errors, to raise them together."""

    def __init__(self, path: Path, expected: str) -> None:
        self.path = path
        self._expected = expected  # the kind of file, for messages
        self._findings: list[tuple[int, str | Callable[[], str]]] = []
        self.sections: dict[str, yaml.Node] = {}  # by key, in file order
        self.lines: dict[str, int] = {}  # line of each key
        self.suggested_keys: set[str] = set()  # known keys that a misspelled key resembles

    def where(self, node: yaml.Node) -> str:
        return f"{self.path}:{line_of(node)}"

    def report(self, place: yaml.Node | int, text: str | Callable[[], str]) -> None:
        """Record an error at a node or on a line; a costly text is made only if it is shown."""
        self._findings.append((place if isinstance(place, int) else line_of(place), text))

    def refuse(self, node: yaml.Node, key: str, expected: str) -> None:
        """Record that the value under ``key`` is not the expected one."""
        self.report(node, f"{key}: got {describe_node(node)}, expected {expected}")

    def raise_findings(self) -> None:
        """Raise ``GenerationError`` with the first errors, one per line, in file order."""
        if self._findings:
            ordered = sorted(self._findings, key=lambda finding: finding[0])
            lines = [
                f"{self.path}:{line}: {text if isinstance(text, str) else text()}"
                for line, text in ordered[:MOST_FINDINGS]
            ]
            if len(ordered) > MOST_FINDINGS:
                more = counted(len(ordered) - MOST_FINDINGS, "more error")
                lines.append(f"{self.path}: {more}; correct these first")
            raise GenerationError("\n".join(lines))

    def read_sections(
        self,
        keys: tuple[str, ...],
        required: str,
        *,
        alias_hint: str = "",
        root: yaml.Node | None = None,
        also: Collection[str] = (),
    ) -> None:
        """Read the top-level keys of the file, or of its root; each may occur once.

        Those in ``also`` are accepted, but messages do not offer them.
        """
        root = root or self.compose(alias_hint)
        if root is None or not is_plain(root, "map"):
            line = 1 if root is None else line_of(root)
            self._fail(f"got {describe_node(root)}, expected a mapping with {required}", line)
        unknown = 0
        for key, value in root.value:
            name = key.value if is_plain(key, "str") else ""
            if name in self.sections:
                first = self.lines[name]
                self.report(key, f"duplicate key '{name}', first on line {first}; merge them")
            elif name in keys or name in also:
                self.sections[name] = value
                self.lines[name] = line_of(key)
            else:
                unknown += 1  # similarity searches for 90,000 keys take seconds
                is_shown = unknown <= MOST_FINDINGS
                meant = difflib.get_close_matches(name, keys, n=1) if is_shown else []
                self.suggested_keys.update(meant)
                hint = (
                    f"did you mean '{meant[0]}'?" if meant else f"expected one of {', '.join(keys)}"
                )
                self.report(key, f"unknown key: got {describe_node(key)}, {hint}")

    def items(self, key: str, expected: str) -> list[yaml.Node]:
        """The entries of the list under ``key``, if there is one; report any other value."""
        node = self.sections.get(key)
        if node is None or is_plain(node, "null"):
            return []
        if not is_plain(node, "seq"):
            self.refuse(node, key, expected)
            return []
        return list(node.value)

    def is_string(self, key: str, node: yaml.Node, expected: str) -> bool:
        """True for a non-empty string; report any other value."""
        if is_plain(node, "str") and node.value:
            return True
        is_word = isinstance(node, yaml.ScalarNode) and not is_plain(node, "null")
        hint = "; put it in quotes if it is one" if is_word and node.value else ""
        self.refuse(node, key, f"{expected}{hint}")
        return False

    def compose(self, alias_hint: str = "") -> yaml.Node | None:
        """Parse the file's only document and return its root.

        Raises ``GenerationError`` for invalid YAML. No Python objects are constructed. An alias
        becomes the node that it refers to.
        """
        # Like libyaml, and unlike PyYAML's own scanner, accept tabs at the end of a line.
        text = _TRAILING_TABS.sub("", self._text())
        try:
            return yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = ", ".join(part for part in (error.context, error.problem) if part)
            hint = alias_hint if "alias" in problem else ""
            self._fail(f"not YAML: {problem}{hint}", mark.line + 1 if mark else 1)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            self._fail(f"not YAML: got the character U+{error.character:04X}; remove it", line)
        except RecursionError:
            inside = "got hundreds of nested lists or mappings"
            self._fail(f"{inside}; expected {self._expected}")

    def _text(self) -> str:
        try:
            with self.path.open("rb") as file:
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                self._fail(f"got more than {LARGEST:,} bytes; expected {self._expected}")
            return content.decode()
        except OSError as error:
            self._fail(f"{error.strerror}; expected {self._expected}")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            byte = f"the byte 0x{content[error.start]:02X}"
            self._fail(f"got {byte}, expected UTF-8. Save the file as UTF-8", line)

    def _fail(self, text: str, line: int | None = None) -> NoReturn:
        place = self.path if line is None else f"{self.path}:{line}"
        raise GenerationError(f"{place}: {text}") from None
