"""Read YAML with line numbers; report duplicate keys and unsupported types as findings.

Aliases are refused: a configuration does not need them, and nine lines of nested aliases expand
to a billion values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ci.errors import ConfigError

Location = tuple[str | int, ...]

DEEPEST = 16  # levels; no model has more than half as many

_CONFLICT = re.compile("^<{7}(?= |$)", re.MULTILINE)  # the first line of one that git leaves

# A command line ends at NUL, and UTF-8 cannot encode surrogates.
_INVALID_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class FileFinding:
    """One error in a YAML file, at a 1-based line."""

    line: int
    location: Location
    text: str


def format_findings(findings: Iterable[FileFinding], file: str) -> str:
    """Format all findings in ``file``, one per line: ``ci.yaml:2: platforms.cpu: got ...``."""
    ordered = sorted(findings, key=lambda finding: (finding.line, str(finding.location)))
    places = ((f"{file}:{it.line}", ".".join(map(str, it.location)), it.text) for it in ordered)
    return "\n".join(": ".join(filter(None, place)) for place in places)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A YAML file as plain data, with the line of every value and the findings so far."""

    data: object
    lines: Mapping[Location, int]
    findings: tuple[FileFinding, ...]

    def line_of(self, location: Location) -> int:
        """Return the line of a value, or of the nearest enclosing value that exists."""
        while location not in self.lines and location:
            location = location[:-1]
        return self.lines.get(location, 1)


class _Loader(yaml.SafeLoader):
    """Safe YAML without dates: ``2026-01-01`` stays a string, as in JSON."""


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same with libyaml, where PyYAML was built with it: 12 times as fast."""


_Loader.yaml_implicit_resolvers = _FastLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Reader:
    """Turns the node tree into plain data, and collects lines and findings."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._seen: set[int] = set()
        self.lines: dict[Location, int] = {}
        self.findings: list[FileFinding] = []

    def read(self, node: yaml.Node, location: Location, line: int | None = None) -> object:
        self.lines[location] = line = line or node.start_mark.line + 1
        # Do not descend into an alias, or below the depth limit.
        if id(node) in self._seen:
            text = "got an alias of another value, expected the value itself"
            return self._report(line, location, text)
        if len(location) > DEEPEST:
            return self._report(line, location, f"got more than {DEEPEST} levels")
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, n)) for n, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(line, location, "got a list or mapping as a key, expected a name")
            elif _INVALID_TEXT.search(key):
                self._report(line, location, f"got {key!a} as a key, expected a name")
            elif key in values:
                place = (*location, key)
                text = f"got a duplicate key, first given on line {self.lines[place]}"
                self._report(line, place, text)
            else:
                values[key] = self.read(value_node, (*location, key), line)
        return values

    def _scalar(self, node: yaml.Node, location: Location) -> object:
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            value = NotImplemented
        line = node.start_mark.line + 1
        if isinstance(value, str) and _INVALID_TEXT.search(value):
            return self._report(line, location, f"got {value!a}, expected text")
        if value is None or isinstance(value, str | int | float):
            return value
        return self._report(line, location, f"got the type {node.tag}, expected plain YAML")

    def _report(self, line: int, location: Location, text: str) -> object:
        """Record an error in a value; return None, which replaces the value."""
        self.findings.append(FileFinding(line=line, location=location, text=text))
        return None


def read_document(path: Path, *, remedy: str | None = None) -> Document:
    """Parse a YAML file; a syntax error gives a document with that one finding.

    Raises:
        ConfigError: The file cannot be read, or does not exist. ``remedy`` is for the latter.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", remedy=remedy) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    try:
        loader = _FastLoader(text) if _is_shallow(text) else _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return Document(data={}, lines={}, findings=())
        reader = _Reader(loader)
        data = reader.read(node, ())
        return Document(data=data, lines=reader.lines, findings=tuple(reader.findings))
    except yaml.MarkedYAMLError as error:
        if conflict := _CONFLICT.search(text):
            line = text.count("\n", 0, conflict.start()) + 1
            return _invalid_document(line, "got a merge conflict, expected its resolution")
        mark = error.problem_mark or error.context_mark
        parts = ", ".join(filter(None, (error.context, error.problem)))
        return _invalid_document(mark.line + 1 if mark else 1, f"not valid YAML: {parts}")
    except yaml.YAMLError as error:  # a control character, found before any parsing
        return _invalid_document(1, "not valid YAML: " + str(error).splitlines()[0])
    except RecursionError:
        return _invalid_document(loader.line + 1, f"got more than {DEEPEST} levels")


def _is_shallow(text: str) -> bool:
    """Whether ``text`` is valid and has few levels.

    libyaml composes nodes recursively in C, and too many levels would crash the interpreter. Its
    events have no such limit. Invalid text is for PyYAML's own parser, so that its errors read the
    same with and without libyaml.
    """
    level = 0
    try:
        for event in yaml.parse(text, Loader=_FastLoader):
            level += isinstance(event, yaml.CollectionStartEvent)
            level -= isinstance(event, yaml.CollectionEndEvent)
            if level > 2 * DEEPEST:
                return False
    except (yaml.YAMLError, RecursionError):
        return False
    return True


def _invalid_document(line: int, text: str) -> Document:
    return Document(data=None, lines={}, findings=(FileFinding(line=line, location=(), text=text),))
