"""YAML with line numbers: duplicate keys and foreign types are findings, not surprises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

Location = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing wrong with a document, at a 1-based line."""

    line: int
    location: Location
    text: str

    def render(self, file: str) -> str:
        field = ".".join(str(part) for part in self.location)
        return (
            f"{file}:{self.line}: {field}: {self.text}"
            if field
            else (f"{file}:{self.line}: {self.text}")
        )


@dataclass(frozen=True, kw_only=True)
class Document:
    """A YAML file as plain data, with the line of every value and what was wrong so far."""

    data: object
    lines: Mapping[Location, int]
    findings: tuple[Finding, ...]

    def line_of(self, location: Location) -> int:
        """Line of a value, or of the nearest enclosing value that exists."""
        while location not in self.lines and location:
            location = location[:-1]
        return self.lines.get(location, 1)


class _Loader(yaml.SafeLoader):
    """Safe YAML without dates: ``2026-01-01`` stays a string, as JSON would have it."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Reader:
    """Turns the node tree into plain data and collects lines and findings on the way."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._open: list[yaml.Node] = []
        self.lines: dict[Location, int] = {}
        self.findings: list[Finding] = []

    def read(self, node: yaml.Node, location: Location, line: int | None = None) -> object:
        self.lines[location] = line = line or node.start_mark.line + 1
        if node in self._open:
            text = "got an alias of its own parent, expected a value"
            self.findings.append(Finding(line=line, location=location, text=text))
            return None
        self._open.append(node)
        try:
            return self._value(node, location)
        finally:
            self._open.pop()

    def _value(self, node: yaml.Node, location: Location) -> object:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*location, n)) for n, item in enumerate(node.value)]
        return self._scalar(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, object]:
        values: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is None:
                self._report(key_node, location, "got a list or mapping as a key, expected a name")
                continue
            place = (*location, key)
            if key in values:
                first = self.lines[place]
                self._report(key_node, place, f"got a duplicate key, first given on line {first}")
                continue
            values[key] = self.read(value_node, place, key_node.start_mark.line + 1)
        return values

    def _scalar(self, node: yaml.Node, location: Location) -> object:
        try:
            value = self._loader.construct_object(node)
        except (yaml.YAMLError, ValueError):
            value = NotImplemented
        if value is None or isinstance(value, str | int | float):
            return value
        self._report(node, location, f"got the type {node.tag}, expected plain YAML")
        return None

    def _report(self, node: yaml.Node, location: Location, text: str) -> None:
        line = node.start_mark.line + 1
        self.findings.append(Finding(line=line, location=location, text=text))


def read_document(text: str) -> Document:
    """Parse one YAML document; a syntax error is a document with that one finding."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        return _broken(error)
    except yaml.YAMLError as error:  # a control character, found before any parsing
        return _failed(1, "not valid YAML: " + str(error).splitlines()[0])
    if node is None:
        return Document(data={}, lines={}, findings=())
    reader = _Reader(loader)
    data = reader.read(node, ())
    return Document(data=data, lines=reader.lines, findings=tuple(reader.findings))


def _broken(error: yaml.MarkedYAMLError) -> Document:
    mark = error.problem_mark or error.context_mark
    parts = [part for part in (error.context, error.problem) if part]
    return _failed(mark.line + 1 if mark else 1, "not valid YAML: " + ", ".join(parts))


def _failed(line: int, text: str) -> Document:
    return Document(data=None, lines={}, findings=(Finding(line=line, location=(), text=text),))
