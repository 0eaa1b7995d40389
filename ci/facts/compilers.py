"""Time traces of compilers: what the seconds of a unit went into.

clang's ``-ftime-trace`` and nvcc's ``-fdevice-time-trace`` write them, as JSON of the same form:
https://clang.llvm.org/docs/ClangCommandLineReference.html#cmdoption-clang-ftime-trace. What GCC has
(``-ftime-report``) names its own passes and nothing of the sources.
"""

from __future__ import annotations

import heapq
import posixpath
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ci.facts.files import Member, without_place
from ci.util.text import parse_json

MOST = 50
LONGEST_NAME = 200
LATEST = 1e15  # microseconds: 31 years
# Of clang, and of nvcc.
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
    """Something that took its time: microseconds, of one thread."""

    thread: tuple[object, object]
    start: float
    end: float
    what: str


def traced_seconds(members: Iterable[Member]) -> dict[str, float]:
    """Seconds by source, template and function over all traces: the most expensive ones.

    Each has the time that it took itself, without what it includes or instantiates, so that
    shares add up.
    """
    total: defaultdict[str, float] = defaultdict(float)
    for member in members:
        if member.name.endswith(".json"):
            for what, time in _own_times(_spans(_events(member.content))).items():
                total[what] += time
    most = heapq.nlargest(MOST, total, key=lambda what: (total[what], what))
    return {what: round(total[what] / 1e6, 6) for what in most if total[what] > 0}


def _events(content: bytes) -> list[Any]:
    try:
        trace = parse_json(content.decode(errors="replace"))
    except ValueError:
        return []
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    return events if isinstance(events, list) else []


def _spans(events: Iterable[Any]) -> Iterator[_Span]:
    begun: _Span | None = None
    for event in events:
        match event:
            case {"ph": "X", "ts": int() | float() as start, "dur": int() | float() as duration}:
                yield _Span(_thread(event), start, start + duration, _what(event))
            case {"ph": "b", "ts": int() | float() as start}:  # of clang 18 on, for sources
                begun = _Span(_thread(event), start, start, _what(event))
            case {"ph": "e", "ts": int() | float() as end} if begun:
                yield begun._replace(end=end)  # it writes the two one after the other
                begun = None


def _what(event: Mapping[str, Any]) -> str:
    """``template std::vector<int>``; nothing for what is of no interest."""
    kind, arguments = _KINDS.get(str(event.get("name"))), event.get("args")
    detail = arguments.get("detail") if isinstance(arguments, dict) else None
    if kind is None or not isinstance(detail, str) or not detail:
        return ""
    # A header that the compiler brings is named from where the compiler is.
    name = without_place(posixpath.normpath(detail)) if kind == "source" else detail
    return f"{kind} {name}"[:LONGEST_NAME]


def _thread(event: Mapping[str, Any]) -> tuple[object, object]:
    return str(event.get("pid")), str(event.get("tid"))


def _own_times(spans: Iterable[_Span]) -> Mapping[str, float]:
    """The time of each without those inside of it."""
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


# What says where something lies, and not how it is compiled; in two words, or in one.
_PLACES = ("-I", "-L", "-MF", "-MT", "-MQ", "-isystem", "-iquote", "-idirafter", "-include")
_NO_OPTIONS = frozenset({"-c", "-o", "-M", "-MM", "-MD", "-MMD", "-MG", "-MP", "--"})
_ABSOLUTE = re.compile(r"(?<![\w.])/[^\s\"'=:,;]+")


def compiler_flags(text: str | None) -> tuple[str, ...]:
    """All options of all units, sorted, each once; of a path only its last part is kept."""
    try:
        entries = parse_json(text or "")
    except ValueError:
        return ()
    options: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        options.update(_options(_words(entry)))
    return tuple(sorted(_ABSOLUTE.sub(_name, option) for option in options))


def _words(entry: Any) -> list[str]:
    """The command without the compiler, and without whatever starts it."""
    command = entry.get("arguments") or entry.get("command") if isinstance(entry, dict) else None
    if isinstance(command, str):
        command = _split(command)
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return words[first:]


def _split(command: str) -> list[str]:
    if not {"'", '"', "\\"} & set(command):
        return command.split()  # a hundred times as fast as what follows
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without an end
        return []


def _options(words: list[str]) -> Iterator[str]:
    option = ""  # that may yet get a value of its own: ``-x cu``
    skipping = False
    for word in [*words, "--"]:
        if skipping or not word.startswith("-"):
            is_value = option and not skipping and not _is_file(word)
            option = f"{option} {word}" if is_value else option
            skipping = False
            continue
        if option:
            yield option
        skipping = word == "-o" or word in _PLACES
        option = "" if word in _NO_OPTIONS or word.startswith(_PLACES) else word


def _is_file(word: str) -> bool:
    return "/" in word or word.startswith("@") or bool(PurePosixPath(word).suffix)


def _name(match: re.Match[str]) -> str:
    return PurePosixPath(match[0]).name
