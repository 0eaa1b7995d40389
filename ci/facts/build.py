"""Facts about a build, read from the logs of pip, CMake, Ninja, ccache and the compilers."""

from __future__ import annotations

import heapq
import posixpath
import re
import shlex
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ci.facts.files import ArchiveMember, read_archive, read_log_lines, read_text_file, strip_place
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.results import BuildResult
from ci.protocol.agent_files import CACHE_HITS, CACHE_LOG
from ci.util.lines import LARGEST_DOCUMENT, LONGEST_SECONDS
from ci.util.text import parse_json

# File names of the artifacts of ``ci.yaml`` that are read here.
NINJA_LOG = "ninja_log"
COMPILE_COMMANDS = "compile_commands.json"
GENERATED = "generated.tar.gz"
TIME_TRACES = "time_traces.tar.gz"


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build: its part of the table's row, and its details in the store."""

    result: BuildResult
    details: BuildDetails


def read_build(folder: Path, *, stages: Iterable[str] = ()) -> Build | None:
    """Read a build from a platform's results folder; ``None`` if nothing there records one.

    ``stages`` are the stages that build; their logs are read.
    """
    logs = chain.from_iterable(read_log_lines(folder / f"{stage}.log") for stage in stages)
    configure_s, wheel_bytes = read_logs(logs)
    commands = parse_ninja_log(read_text_file(folder / NINJA_LOG) or "")
    members = read_archive(folder / GENERATED)
    # Lines of every generated file; binary ones have none.
    generated = {m.name: m.content.count(b"\n") for m in members or () if b"\0" not in m.content}
    units = [command for command in commands if command.kind is UnitKind.COMPILE]
    result = BuildResult(
        configure_s=configure_s,
        compile_s=wall_seconds(commands, UnitKind.COMPILE),
        link_s=wall_seconds(commands, UnitKind.LINK),
        translation_units=len(units) if commands else None,
        wheel_bytes=wheel_bytes,
        generated_lines=None if members is None else sum(generated.values()),
    )
    cached = cached_units(read_text_file(folder / CACHE_LOG), commands)
    details = BuildDetails(
        units=tuple(
            Unit(output=it.output, kind=it.kind, seconds=it.seconds, cached=cached.get(it.output))
            # The most expensive first.
            for it in sorted(commands, key=lambda it: (it.start - it.end, it.output))
        ),
        generated=generated,
        flags=compiler_flags(read_text_file(folder / COMPILE_COMMANDS, LARGEST_DOCUMENT)),
        traced=traced_seconds(read_archive(folder / TIME_TRACES) or ()),
    )
    nothing = (result, details) == (BuildResult(), BuildDetails())
    return None if nothing else Build(result=result, details=details)


# The logs of pip and CMake


# From CMake 3.26 on; older versions print no times.
_CONFIGURED = re.compile(r"\s*-- (?:Configuring|Generating) done \((\d{1,9}(?:\.\d{1,9})?)s\)\s*")
# pip indents the output of its subprocesses, so these lines are its own.
_FOLDER = re.compile(r"Processing (?!.*\.(?:whl|zip|tar(?:\.\w+)?|tgz)\b).+\n?")
_WHEEL = re.compile(r"  Created wheel for \S+: filename=\S+ size=(\d{1,15}) .*\n?")


def read_logs(lines: Iterable[str]) -> tuple[float | None, int | None]:
    """Return the seconds of configuring, and the bytes of the wheel, from the build logs."""
    configure_s = wheel_bytes = None
    own_is_next = False
    for line in lines:
        if " done (" in line and (match := _CONFIGURED.fullmatch(line)):
            # The sum over all projects and configurations.
            configure_s = (configure_s or 0.0) + float(match[1])
        elif _FOLDER.fullmatch(line):
            own_is_next = True
        elif own_is_next and (match := _WHEEL.fullmatch(line)):
            # pip builds the given project before its dependencies.
            own_is_next = False
            wheel_bytes = wheel_bytes or int(match[1])
    return _possible(configure_s), wheel_bytes


def _possible(seconds: float | None) -> float | None:
    """Return ``None`` for a sum that no build can take: its log is not from the tool."""
    return None if seconds is None or seconds > LONGEST_SECONDS else seconds


# ``.ninja_log``: the commands that Ninja ran, with their times
#
# A line has start, end (milliseconds since the start of Ninja), a timestamp, an output and the hash
# of the command: https://ninja-build.org/manual.html#ref_log

MOST_COMMANDS = 1 << 18  # large builds have 100,000; the store keeps each one
NINJA_VERSIONS = range(5, 8)  # 4 had the command instead of its hash; Ninja 1.13 writes 7
_HEADER = re.compile(r"# ninja log v(\d{1,9})\s*")
_LINE = re.compile(r"(\d{1,15})\t(\d{1,15})\t([^\t]*)\t([^\t]+)\t([^\t]*)")
# From 1.11 on, Ninja writes when a command started, in nanoseconds since the epoch.
_MOMENT = re.compile(r"[1-9]\d{18}", re.ASCII)
_OBJECT = re.compile(r"\.(?:o|obj|cubin|fatbin|ptx|gch|pch)$")
_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|a|lib|dylib|dll|pyd|exe)$")
_DEVICE_LINK = "cmake_device_link."
_INTERNAL = "CMakeFiles/"  # stamps of custom targets, not build products


class NinjaCommand(NamedTuple):
    """A command of the build."""

    output: str
    kind: UnitKind
    invocation: int
    start: int  # milliseconds
    end: int
    begun: float = 0.0
    """Seconds since the epoch, by the clock of the file system; 0: not recorded."""

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / 1000


def parse_ninja_log(text: str) -> list[NinjaCommand]:
    """Return the last run of each command; empty if the text is not a log of a known version.

    Ninja writes a line when a command ends. So an end before that of the previous line marks a new
    invocation of Ninja.
    """
    header, _, rest = text.partition("\n")
    version = _HEADER.fullmatch(header)
    if version is None or int(version[1]) not in NINJA_VERSIONS:
        return []
    owner: dict[str, tuple[int, int, int, str]] = {}  # the last run for each output
    moments: dict[tuple[int, int, int, str], float] = {}
    invocation = last = 0
    for line in rest.splitlines():
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) > int(match[2]):
            continue  # truncated, or written by another program
        if len(owner) >= MOST_COMMANDS:
            break
        start, end = int(match[1]), int(match[2])
        invocation += end < last
        last = end
        command = (invocation, start, end, match[5])
        owner[match[4]] = command
        if _MOMENT.fullmatch(match[3]):
            moments[command] = int(match[3]) / 1e9
    outputs: dict[tuple[int, int, int, str], list[str]] = {}
    for output, command in owner.items():
        outputs.setdefault(command, []).append(output)
    commands = []
    for command, names in outputs.items():
        invocation, start, end, _ = command
        of_kind = {_kind(name): name for name in reversed(names)}  # the first of each
        kind = next(kind for kind in UnitKind if kind in of_kind)
        output, moment = strip_place(of_kind[kind]), moments.get(command, 0.0)
        commands.append(NinjaCommand(output, kind, invocation, start, end, moment))
    return commands


def wall_seconds(commands: Iterable[NinjaCommand], kind: UnitKind) -> float | None:
    """Return the seconds in which at least one such command ran; ``None`` if there is none."""
    spans = sorted((c.invocation, c.start, c.end) for c in commands if c.kind is kind)
    if not spans:
        return None
    total, place = 0, (0, 0)  # invocation, and the time up to which it is counted
    for invocation, start, end in spans:
        covered = place[1] if place[0] == invocation else 0
        total += max(0, end - max(start, covered))
        place = (invocation, max(end, covered))
    return _possible(total / 1000)


def _kind(output: str) -> UnitKind:
    folder, _, name = output.rpartition("/")
    if name.startswith(_DEVICE_LINK) or _LIBRARY.search(name):
        return UnitKind.LINK
    if _OBJECT.search(name):
        return UnitKind.COMPILE
    # A program has no suffix, and is outside of the internal folders.
    return UnitKind.OTHER if "." in name or _INTERNAL in f"{folder}/" else UnitKind.LINK


# The compiler cache

# CMake's folders for a source outside its own: ``__/generated/table.cc.o``
_OUTSIDE = re.compile(r"(?:__/)*")


def cached_units(log: str | None, commands: Iterable[NinjaCommand]) -> dict[str, bool]:
    """Map outputs to whether they were cache hits; outputs that the log lacks are left out."""
    outcomes = _hits_by_source(log or "")
    # Those with the same ending are next to each other: a log may have a million of one name.
    sources = sorted(_backwards(source) for source in outcomes)
    outputs: dict[str, list[str]] = defaultdict(list)
    for command in commands:
        if command.kind is UnitKind.COMPILE and (found := _source(command.output, sources)):
            outputs[found].append(command.output)
    cached: dict[str, bool] = {}
    for source, made in outputs.items():
        # The log does not show for which of several targets a source was compiled.
        last = set(outcomes[source][-len(made) :])
        if len(last) == 1:
            cached |= dict.fromkeys(made, last.pop())
    return cached


def _hits_by_source(log: str) -> dict[str, list[bool]]:
    """Map sources to whether each of their compilations was a hit, in order."""
    outcomes: dict[str, list[bool]] = defaultdict(list)
    hits: list[bool] = []  # of the current source
    for line in log.splitlines():
        if line.startswith("# "):
            hits = outcomes[line[2:].strip()]
            hits.append(False)
        elif line in CACHE_HITS and hits:
            hits[-1] = True
    return outcomes


def _backwards(path: str) -> str:
    """Return a path, with a slash before it, from its last character to its first."""
    return f"/{path}"[::-1]


def _source(output: str, sources: Sequence[str]) -> str | None:
    """Find the source of an output: ``src/CMakeFiles/ops.dir/a.cc.o`` is of ``../src/a.cc``.

    ``sources`` are written backwards and sorted.
    """
    folder, _, rest = output.partition("CMakeFiles/")
    inside = rest.partition("/")[2].rpartition(".")[0]
    name = inside[_OUTSIDE.match(inside).end() :]  # type: ignore[union-attr]  # always matches
    folder = folder if name == inside else ""
    for ending in (folder + name, name) if name else ():
        wanted = _backwards(ending)
        at = bisect_left(sources, wanted)
        found = [source for source in sources[at : at + 2] if source.startswith(wanted)]
        if len(found) == 1:
            return found[0][-2::-1]
    return None


# Time traces of compilers: how the seconds of a unit were spent
#
# clang's ``-ftime-trace`` and nvcc's ``-fdevice-time-trace`` write JSON of the same form:
# https://clang.llvm.org/docs/ClangCommandLineReference.html#cmdoption-clang-ftime-trace. GCC's
# ``-ftime-report`` names its own passes, but no sources.

# Entries that are kept as possible causes of a change; a cheaper entry explains none.
MOST_TRACED = 50
LONGEST_NAME = 200  # characters; a template's name repeats its arguments, often templates too
LATEST = 1e15  # microseconds: 31 years
# Names of events of clang and nvcc.
_KINDS = {
    "Source": "source",
    "Processing Header File": "source",
    "InstantiateClass": "template",
    "InstantiateFunction": "template",
    "Instantiating Template Class": "template",
    "Instantiating Template Function": "template",
    "OptFunction": "function",
    "CodeGen Function": "function",
    "Scanning Function Body": "function",
}


class _Span(NamedTuple):
    """A timed event of one thread, in microseconds."""

    thread: tuple[object, object]
    start: float
    end: float
    what: str


def traced_seconds(members: Iterable[ArchiveMember]) -> dict[str, float]:
    """Return seconds by source, template and function over all traces: the most expensive ones.

    Each has its self time, without what it includes or instantiates, so that the times add up.
    """
    total: defaultdict[str, float] = defaultdict(float)
    for member in members:
        if not member.name.endswith(".json") or len(member.content) > LARGEST_DOCUMENT:
            continue
        try:
            trace = parse_json(member.content.decode(errors="replace"))
        except ValueError:
            continue
        if isinstance(trace, dict) and isinstance(events := trace.get("traceEvents"), list):
            for what, time in _self_times(_spans(events)).items():
                total[what] += time
    most = heapq.nlargest(MOST_TRACED, total, key=lambda what: (total[what], what))
    return {what: round(total[what] / 1e6, 6) for what in most if total[what] > 0}


def _spans(events: Iterable[Any]) -> Iterator[_Span]:
    begun: _Span | None = None
    for event in events:
        match event:
            case {"ph": "X", "ts": int() | float() as start, "dur": int() | float() as duration}:
                yield _span(event, start, start + duration)
            case {"ph": "b", "ts": int() | float() as start}:  # from clang 18 on, for sources
                begun = _span(event, start, start)
            case {"ph": "e", "ts": int() | float() as end} if begun:
                yield begun._replace(end=end)  # begin and end are adjacent
                begun = None


def _span(event: Mapping[str, Any], start: float, end: float) -> _Span:
    """Make a span named ``template std::vector<int>``; the name is empty for other events."""
    kind, arguments = _KINDS.get(str(event.get("name"))), event.get("args")
    detail = arguments.get("detail") if isinstance(arguments, dict) else None
    what = ""
    if kind is not None and isinstance(detail, str) and detail:
        # The path of a compiler's own header is relative to the compiler.
        name = strip_place(posixpath.normpath(detail)) if kind == "source" else detail
        what = f"{kind} {name}"[:LONGEST_NAME]
    return _Span((str(event.get("pid")), str(event.get("tid"))), start, end, what)


def _self_times(spans: Iterable[_Span]) -> Mapping[str, float]:
    """Return the self time of each name: without the spans nested inside it."""
    own: defaultdict[str, float] = defaultdict(float)
    around: list[_Span] = []
    sound = (span for span in spans if span.what and 0 <= span.start <= span.end < LATEST)
    for span in sorted(sound, key=lambda s: (s.thread, s.start, -s.end)):
        while around and (around[-1].thread != span.thread or around[-1].end <= span.start):
            around.pop()
        own[span.what] += span.end - span.start
        if around:
            own[around[-1].what] -= min(span.end, around[-1].end) - span.start
        around.append(span)
    return own


# Flags of the compilers

# Options that locate files, with the path as the next word or in the same word.
_PLACES = ("-I", "-L", "-MF", "-MT", "-MQ", "-isystem", "-iquote", "-idirafter", "-include")
_NO_OPTIONS = frozenset({"-c", "-o", "-M", "-MM", "-MD", "-MMD", "-MG", "-MP", "--"})
_ABSOLUTE = re.compile(r"(?<![\w.])/[^\s\"'=:,;]+")


def compiler_flags(text: str | None) -> tuple[str, ...]:
    """Return the options of all units, sorted, without duplicates and without folders."""
    try:
        entries = parse_json(text or "")
    except ValueError:
        return ()
    options: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        options.update(_options(_words(entry)))
    names = (_ABSOLUTE.sub(lambda path: PurePosixPath(path[0]).name, it) for it in options)
    return tuple(sorted(names))


def _words(entry: Any) -> list[str]:
    """Return a command's words from the first option on, without compiler and launcher."""
    command = entry.get("arguments") or entry.get("command") if isinstance(entry, dict) else None
    if isinstance(command, str):
        quoted = {"'", '"', "\\"} & set(command)
        try:  # without quotes use `str.split`, which is a hundred times as fast
            command = shlex.split(command) if quoted else command.split()
        except ValueError:  # an unbalanced quote
            return []
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return words[first:]


def _options(words: list[str]) -> Iterator[str]:
    option: list[str] = []  # may be followed by its value: ``-x cu``
    skipping = False
    for word in [*words, "--"]:
        if skipping or not word.startswith("-"):
            is_file = "/" in word or word.startswith("@") or PurePosixPath(word).suffix
            if option and not skipping and not is_file:
                option.append(word)
            skipping = False
            continue
        if option:
            yield " ".join(option)
        skipping = word == "-o" or word in _PLACES
        option = [] if word in _NO_OPTIONS or word.startswith(_PLACES) else [word]
