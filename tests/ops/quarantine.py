"""The quarantine: tests known to fail, crash or hang on a platform, read strictly.

Quarantined tests are run; ``guards`` compares what they do with what their entry says.
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from names import TestName


class QuarantineError(Exception):
    """The file is wrong; one line per error, each with file and line."""


class Outcome(str, Enum):
    """What a quarantined test does."""

    FAILS = "fails"
    CRASHES = "crashes"
    HANGS = "hangs"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One defect; the fields without a default are the keys that an entry must have."""

    test: str
    outcome: Outcome
    reason: str
    date: datetime.date
    reference: str
    dtypes: tuple[str, ...] = ()
    slot: int | None = None
    line: int = field(default=0, compare=False)

    def matches(self, test: TestName) -> bool:
        properties = test.properties
        return (
            any(self._pattern.fullmatch(name) for name in test.names)
            and (not self.dtypes or properties.get("dtype") in self.dtypes)
            and self.slot in (None, properties.get("slot"))
        )

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """``*`` is the only wildcard: test ids are full of brackets."""
        return re.compile(".*".join(map(re.escape, self.test.split("*"))), re.DOTALL)

    def __str__(self) -> str:
        details = [*self.dtypes, *([] if self.slot is None else [f"slot {self.slot}"])]
        return " ".join([self.test, *details, f"(line {self.line})"])


def load(path: Path, platforms: Collection[str]) -> dict[str, tuple[Entry, ...]]:
    """Reads the entries of every platform.

    Raises:
        QuarantineError: with all errors of the file.
    """
    reader = _Reader(path.name)
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise QuarantineError(f"{path.name}:{line}: cannot be read: {error}") from error
    entries = reader.platforms(root, platforms)
    if reader.errors:
        raise QuarantineError("\n".join(reader.errors))
    return entries


class _Reader:
    """Turns YAML nodes, which know their lines, into entries, and collects all errors."""

    def __init__(self, file: str) -> None:
        self.errors: list[str] = []
        self._file = file

    def platforms(
        self, root: yaml.Node | None, known: Collection[str]
    ) -> dict[str, tuple[Entry, ...]]:
        if not isinstance(root, yaml.MappingNode):
            self._add_error(root, "expected a list of entries per platform, like `cpu: []`")
            return {}
        return {
            name: tuple(self._entries(node))
            for name, node in self._items(root, "platform", known).items()
        }

    def _entries(self, node: yaml.Node) -> Iterator[Entry]:
        if not isinstance(node, yaml.SequenceNode):
            self._add_error(node, "expected a list of entries; an empty one is []")
            return
        seen: dict[tuple[object, ...], int] = {}
        for item in node.value:
            entry = self._entry(item)
            if entry is None:
                continue
            first = seen.setdefault((entry.test, entry.dtypes, entry.slot), entry.line)
            if first != entry.line:
                self._add_error(
                    item, f"duplicate entry {entry.test}; the first one is in line {first}"
                )
            yield entry

    def _entry(self, node: yaml.Node) -> Entry | None:
        if not isinstance(node, yaml.MappingNode):
            self._add_error(node, f"expected an entry with the keys {', '.join(_KEYS)}")
            return None
        errors = len(self.errors)
        items = self._items(node, "key", _KEYS)
        for key in sorted(_REQUIRED - items.keys()):
            self._add_error(node, f"the entry has no {key}")
        values = {key: self._value(key, item) for key, item in items.items()}
        if len(self.errors) > errors:
            return None
        return Entry(**values, line=node.start_mark.line + 1)

    def _items(
        self, node: yaml.MappingNode, what: str, known: Collection[str]
    ) -> dict[str, yaml.Node]:
        items: dict[str, yaml.Node] = {}
        for key_node, value in node.value:
            key = str(key_node.value)
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
                self._add_error(key_node, f"unknown {what} {key}; {hint}")
            elif key in items:
                self._add_error(key_node, f"duplicate {what} {key}")
            else:
                items[key] = value
        return items

    def _value(self, key: str, node: yaml.Node) -> Any:
        try:
            return _KEYS[key](_plain(node))
        except (ValueError, yaml.YAMLError) as error:
            self._add_error(node, f"{key}: {getattr(error, 'problem', error)}")
            return None

    def _add_error(self, node: yaml.Node | None, text: str) -> None:
        line = node.start_mark.line + 1 if node else 1
        self.errors.append(f"{self._file}:{line}: {text}")


def _plain(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text, got {value!r}")
    return value


def _outcome(value: object) -> Outcome:
    if value not in list(Outcome):
        raise ValueError(f"expected {', '.join(Outcome)}; got {value!r}")
    return Outcome(value)


def _date(value: object) -> datetime.date:
    # In Python, a datetime is a date too.
    if type(value) is not datetime.date:
        raise ValueError(f"expected a day like 2026-11-21, got {value!r}")
    return value


def _dtypes(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"expected a list like [float32, int64], got {value!r}")
    return tuple(sorted(map(_text, value)))


def _slot(value: object) -> int:
    # In Python, True is an int too.
    if type(value) is not int or value not in range(10):
        raise ValueError(f"expected a slot from 0 to 9, got {value!r}")
    return value


_KEYS: dict[str, Callable[[object], object]] = {
    "test": _text,
    "dtypes": _dtypes,
    "slot": _slot,
    "outcome": _outcome,
    "reason": _text,
    "date": _date,
    "reference": _text,
}
_REQUIRED = {item.name for item in fields(Entry) if item.default is MISSING}
