"""``.ninja_log``: what Ninja ran, and when.

A line is start, end (milliseconds since that invocation began), a time stamp, an output and the
hash of the command: https://ninja-build.org/manual.html#ref_log
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ci.agent.compiler_cache import HITS
from ci.facts.files import without_place
from ci.model.details import UnitKind

VERSIONS = range(5, 8)
_HEADER = re.compile(r"# ninja log v(\d{1,9})\s*")
_TIME = re.compile(r"\d{1,15}")
_OBJECT = re.compile(r"\.(?:o|obj|cubin|fatbin|ptx|gch|pch)$")
_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|a|lib|dylib|dll|pyd|exe)$")
_DEVICE_LINK = "cmake_device_link."
_INTERNAL = "CMakeFiles/"  # what is no file that anybody asked for: stamps of custom targets


class Command(NamedTuple):
    """A command of the build."""

    output: str
    kind: UnitKind
    invocation: int
    start: int  # milliseconds
    end: int

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1000


class _Line(NamedTuple):
    start: int
    end: int
    output: str
    command: str  # its hash


def parse_ninja_log(text: str) -> list[Command]:
    """The commands, each as it ran last; none for what is no log of a version that is known."""
    header, _, rest = text.partition("\n")
    match = _HEADER.fullmatch(header)
    if match is None or int(match[1]) not in VERSIONS:
        return []
    return _commands(filter(None, map(_line, rest.splitlines())))


def wall_seconds(commands: Iterable[Command], kind: UnitKind) -> float | None:
    """Seconds in which at least one such command ran; ``None`` where there is none."""
    spans = sorted((c.invocation, c.start, c.end) for c in commands if c.kind is kind)
    if not spans:
        return None
    total, place = 0, (0, 0)  # of the invocation, until when it is counted
    for invocation, start, end in spans:
        covered = place[1] if place[0] == invocation else 0
        total += max(0, end - max(start, covered))
        place = (invocation, max(end, covered))
    return total / 1000


def _line(text: str) -> _Line | None:
    fields = text.split("\t")
    if len(fields) != 5 or not (_TIME.fullmatch(fields[0]) and _TIME.fullmatch(fields[1])):
        return None  # cut off, or somebody else's
    start, end = int(fields[0]), int(fields[1])
    return _Line(start, end, fields[3], fields[4]) if fields[3] and start <= end else None


def _commands(lines: Iterable[_Line]) -> list[Command]:
    """Put the outputs of one command together; of an output that was made twice, the last counts.

    Ninja writes a line when a command ends, so that a time before the last one's is of another
    invocation.
    """
    owner: dict[str, tuple[int, int, int, str]] = {}
    invocation, last = 0, 0
    for line in lines:
        invocation += line.end < last
        last = line.end
        owner[line.output] = (invocation, line.start, line.end, line.command)
    outputs: dict[tuple[int, int, int, str], list[str]] = {}
    for output, command in owner.items():
        outputs.setdefault(command, []).append(output)
    return [_command(names, *command[:3]) for command, names in outputs.items()]


def _command(names: list[str], invocation: int, start: int, end: int) -> Command:
    kinds = {name: _kind(name) for name in names}
    kind = next((k for k in UnitKind if k in kinds.values()), UnitKind.OTHER)
    output = next(name for name in names if kinds[name] is kind)
    return Command(without_place(output), kind, invocation, start, end)


def _kind(output: str) -> UnitKind:
    folder, _, name = output.rpartition("/")
    if name.startswith(_DEVICE_LINK) or _LIBRARY.search(name):
        return UnitKind.LINK
    if _OBJECT.search(name):
        return UnitKind.COMPILE
    # A program has no suffix, and lies where people look for it.
    return UnitKind.OTHER if "." in name or _INTERNAL in f"{folder}/" else UnitKind.LINK


_OUTSIDE = "__/"  # CMake's folder for a source above its own: ``__/generated/table.cc.o``


def cached_units(log: str | None, commands: Iterable[Command]) -> Callable[[Command], bool | None]:
    """Tell whether the cache had a unit; ``None`` where nobody can tell."""
    outcomes = _outcomes(log or "")
    sources: dict[str, list[str]] = defaultdict(list)  # by the last part of their names
    for source in outcomes:
        sources[source.rpartition("/")[2]].append(source)
    units: dict[str, list[Command]] = defaultdict(list)
    source_of: dict[str, str] = {}
    for command in commands:
        if command.kind is UnitKind.COMPILE and (found := _source(command.output, sources)):
            units[found].append(command)
            source_of[command.output] = found

    def cached(command: Command) -> bool | None:
        source = source_of.get(command.output)
        if source is None:
            return None
        # One source can be compiled for several targets; the log does not tell them apart.
        last = set(outcomes[source][-len(units[source]) :])
        return last.pop() if len(last) == 1 else None

    return cached


def _outcomes(log: str) -> dict[str, list[bool]]:
    """Whether each compilation of a source was a hit, in order."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    hits: list[bool] = []  # of the source at hand
    for line in log.splitlines():
        if line.startswith("# "):
            hits = outcomes[line[2:].strip()]
            hits.append(False)
        elif line in HITS and hits:
            hits[-1] = True
    return outcomes


def _source(output: str, sources: Mapping[str, list[str]]) -> str | None:
    """The source of ``src/CMakeFiles/ops.dir/core/dispatch.cc.o``: ``../src/core/dispatch.cc``."""
    folder, _, rest = output.partition("CMakeFiles/")
    name = rest.partition("/")[2].rpartition(".")[0]
    while name.startswith(_OUTSIDE):
        name, folder = name.removeprefix(_OUTSIDE), ""
    for ending in (folder + name, name) if name else ():
        named = sources.get(name.rpartition("/")[2], ())
        found = [source for source in named if f"/{source}".endswith(f"/{ending}")]
        if len(found) == 1:
            return found[0]
    return None
