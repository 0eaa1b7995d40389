"""``ccache.txt``, ccache's log of a run: which translation units it had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from ci.agent.compiler_cache import HITS
from ci.details import UnitKind
from ci.measures.ninja import Command

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
