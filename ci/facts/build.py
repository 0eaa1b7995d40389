"""All that is read of a build, put together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ci.agent.compiler_cache import STATISTICS
from ci.facts.compilers import compiler_flags, traced_seconds
from ci.facts.files import lines_of, members_of, text_of
from ci.facts.ninja import Command, cached_units, parse_ninja_log, wall_seconds
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.results import BuildResult

# Artifacts of ``ci.yaml`` with a meaning, by the names of their files in the results.
NINJA_LOG = "ninja_log"
COMPILE_COMMANDS = "compile_commands.json"
GENERATED = "generated.tar.gz"
TIME_TRACES = "time_traces.tar.gz"


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build: what the table's row has of it, and what the store keeps beside."""

    result: BuildResult
    details: BuildDetails


def read_build(folder: Path, *, stages: Iterable[str] = ()) -> Build | None:
    """What a platform's results folder says of the build; ``None`` where it says nothing.

    ``stages`` are those that build, whose logs are read.
    """
    log = BuildLog()
    for stage in stages:
        log.read(lines_of(folder / f"{stage}.log"))
    commands = parse_ninja_log(text_of(folder / NINJA_LOG) or "")
    generated = _generated(folder / GENERATED)
    units = [command for command in commands if command.kind is UnitKind.COMPILE]
    result = BuildResult(
        configure_s=log.configure_s,
        compile_s=wall_seconds(commands, UnitKind.COMPILE),
        link_s=wall_seconds(commands, UnitKind.LINK),
        translation_units=len(units) if commands else None,
        wheel_bytes=log.wheel_bytes,
        generated_lines=None if generated is None else sum(generated.values()),
    )
    details = BuildDetails(
        units=_units(commands, text_of(folder / STATISTICS)),
        generated=generated or {},
        flags=compiler_flags(text_of(folder / COMPILE_COMMANDS)),
        traced=traced_seconds(members_of(folder / TIME_TRACES) or ()),
    )
    nothing = (result, details) == (BuildResult(), BuildDetails())
    return None if nothing else Build(result=result, details=details)


def _units(commands: list[Command], cache_log: str | None) -> tuple[Unit, ...]:
    """The most expensive first."""
    cached = cached_units(cache_log, commands)
    return tuple(
        Unit(
            output=command.output,
            kind=command.kind,
            seconds=command.seconds,
            cached=cached(command),
        )
        for command in sorted(commands, key=lambda it: (it.start - it.end, it.output))
    )


def _generated(path: Path) -> Mapping[str, int] | None:
    """Lines of every file of the generated sources; binary ones have none."""
    members = members_of(path)
    if members is None:
        return None
    return {m.name: m.content.count(b"\n") for m in members if b"\0" not in m.content}


# From CMake 3.26 on; the lines before had no times.
_CONFIGURED = re.compile(r"\s*-- (?:Configuring|Generating) done \((\d{1,9}(?:\.\d{1,9})?)s\)\s*")
# pip puts what its subprocesses say further in.
_FOLDER = re.compile(r"Processing (?!.*\.(?:whl|zip|tar(?:\.\w+)?|tgz)\b).+\n?")
_WHEEL = re.compile(r"  Created wheel for \S+: filename=\S+ size=(\d{1,15}) .*\n?")


class BuildLog:
    """Gathers it from lines."""

    def __init__(self) -> None:
        self.configure_s: float | None = None
        self.wheel_bytes: int | None = None
        self._own_is_next = False

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            if " done (" in line and (match := _CONFIGURED.fullmatch(line)):
                # Of all the projects and configurations.
                self.configure_s = (self.configure_s or 0.0) + float(match[1])
            elif _FOLDER.fullmatch(line):
                self._own_is_next = True
            elif self._own_is_next and (match := _WHEEL.fullmatch(line)):
                # pip builds what it was pointed at before what that depends on.
                self._own_is_next = False
                self.wheel_bytes = self.wheel_bytes or int(match[1])
