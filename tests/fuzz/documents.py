"""Documents as containers hand them out, and strategies that make them hostile."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, TypedDict

from hypothesis import strategies as st

from ci.protocol.events import (
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    DiskFull,
    LeaseFailed,
    LeaseReleased,
    LeaseTaken,
    LeaseWaiting,
    Output,
    RerunFinished,
    RerunsEnded,
    RerunStarted,
    RunFinished,
    RunStarted,
    ShardFinished,
    StageFinished,
    StageLost,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from ci.protocol.job import PROTOCOL

CONTROLS = "\x1b[31m\x1b]0;title\x07\x9b2J\u202e\r\x08"
NESTED = 200
INPUT = 1 << 17  # bytes to which a piece is repeated: what is quadratic takes seconds for it

# What a field may hold; `json.dumps` writes Infinity and NaN, which are not JSON.
VALUES: tuple[Any, ...] = (
    *(float("inf"), float("-inf"), float("nan"), 1e300, -1e300, -1, 0, 1 << 31, 1 << 63, 10**400),
    *("", CONTROLS, "a\nb", "a\0b", "\ud800", "../../x", "/etc/passwd", "x" * 70_000, "1e999"),
    *(None, True, [], {}, [[]], {"": {}}, ["x"] * 3000, {"\x1b[2J": CONTROLS}),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01T00:00:00"),
    *("passed", "cpu", "nvidia", "latest", 4, 5, 1e18),
)
# Pieces that are put into any document.
PIECES = (
    *(b"", b"\n", b"\r", b"\0" * 600, b"\xff\xfe\x00", b"\xed\xa0\x80", b"\xe2\x80\xae"),
    *(b"[" * 70_000, b'{"a":' * 5_000, b"1" * 6_000, b"\\ud800", b"\\u0000", b"NaN", b"1e400"),
    *(b"\x1b]0;title\x07", b"\x1b[2J", b"\xc2\x9b2J", b"://", b"://a:b@", b"%3A%2F%2F", b"@"),
    *(b'"event": 1, ', b'"$report_type": 1, ', b"{", b"}", b"]", b'"', b"\t", b"  ", b"__/"),
    *("²".encode(), "٣".encode(), b"-1", b"99999999999999999999"),
)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, item in items:
        found.append((*place, key))
        if isinstance(item, (dict, list)):
            found += places(item, (*place, key))
    return found


def changed(document: Any, place: tuple[Any, ...], change: Callable[[Any, Any], None]) -> None:
    """Change the item at a place, if earlier changes have left it there."""
    *way, last = place
    try:
        for key in way:
            document = document[key]
        change(document, last)
    except (KeyError, IndexError, TypeError):
        pass


# Strategies


def hostile_bytes(*seeds: bytes) -> st.SearchStrategy[bytes]:
    """Bytes of a document, cut, repeated, or with hostile pieces in it; or any bytes."""
    return st.one_of(_edited(seeds), _edited(seeds), st.binary(max_size=300))


@st.composite
def _edited(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    content: bytes = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        length = draw(st.sampled_from([0, 1, 8, 100, len(content)]))
        part, after = content[start : start + length], content[start + length :]
        how = draw(st.sampled_from(["insert", "replace", "drop", "cut", "repeat", "many", "move"]))
        piece = draw(st.sampled_from(PIECES))
        middle = {
            "insert": piece + part,
            "replace": piece,
            "drop": b"",
            "cut": part,
            "repeat": part * 3,
            "many": (part or piece) * (INPUT // max(len(part or piece), 1)),
            "move": part[::-1],
        }[how]
        content = (content[:start] + middle + (b"" if how == "cut" else after))[: 8 * INPUT]
    return content


@st.composite
def hostile_json(draw: st.DrawFn, *seeds: Any) -> bytes:
    """A JSON document with values that it should not have."""
    document = deepcopy(draw(st.sampled_from(seeds)))
    for place in draw(st.lists(st.sampled_from(places(document)), max_size=3)):
        value = draw(st.sampled_from([*VALUES, nested(NESTED), "remove", "twice"]))

        def change(container: Any, key: Any, value: Any = value) -> None:
            if value == "remove":
                del container[key]
            elif value == "twice":
                container[key] *= 2
            else:
                container[key] = deepcopy(value)  # the next change may be inside of it

        changed(document, place, change)
    return json.dumps(document).encode()


def hostile_lines(*seeds: Any) -> st.SearchStrategy[bytes]:
    """Lines of JSON, some of them hostile."""
    line = st.one_of(
        st.sampled_from(seeds).map(lambda value: json.dumps(value).encode()),
        hostile_json(*seeds),
        hostile_json(*seeds),
        hostile_bytes(*(json.dumps(seed).encode() for seed in seeds)),
    )
    return st.lists(line, max_size=12).map(b"\n".join)


# Archives

NAMES = (
    *("r/events.jsonl", "r/pytest.jsonl", "r/install.log", "r/environment.json", "r/ninja_log"),
    *("r", "r/", "r//a", "./r/a", "../a", "r/../../a", "/etc/a", "", ".", "r/a/b/c", "r/a"),
    *("r/" + "n" * 300, "r/" + "d/" * 40 + "a", "r/\udcff", "r/a\nb", "r/\x1b[2J", "r/host.lock"),
    *("r/engine-events.jsonl", "r/pytest.rerun-1.jsonl", "r/" + "9" * 600),
)
SIZES = (0, 1, 511, 512, 600, 1 << 16, 1 << 33, -1, (1 << 63) - 1)
TYPES = (
    *(tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE),
    *(tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME),
    *(tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.CONTTYPE, b"\x00", b"V", b"\xff"),
)
EXTENDED = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
SPARSE = "GNU.sparse."
HEADERS: tuple[tuple[str, str], ...] = (
    *(("path", "r/long"), ("path", "../up"), ("linkpath", "../../x"), ("size", "-1")),
    *(("size", "1e9"), ("size", "99999999999999999999"), ("mtime", "inf"), ("mtime", "nan")),
    *(("mtime", "1e300"), ("uid", "-1"), ("hdrcharset", "BINARY"), ("comment", "1" * 9000)),
    *((f"{SPARSE}major", "1"), (f"{SPARSE}minor", "0"), (f"{SPARSE}realsize", "1" * 25)),
    *((f"{SPARSE}map", "0,1,2"), (f"{SPARSE}map", "0,5,2,-9,100,1"), (f"{SPARSE}size", "-5")),
    *((f"{SPARSE}numblocks", "9" * 9), (f"{SPARSE}name", "/x"), ("", "x"), ("a=b", "c\nd")),
)
RECORDS = (
    *(b"2 " * 3000 + b"=", b"11 path=a\n" * 500, b"1" * 9000, b"0 a=b\n", b"-5 a=b\n"),
    *(b"99999 path=a\n", b"9 \xff=\xff\n\n", b"10\n0\n512\n" * 100, b"9" * 30 + b"\n"),
)
TARGETS = ("/etc/passwd", "../../x", ".", "r", "a", "", "r/a/" * 100)


def entry(
    name: str,
    content: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    size: int | None = None,
    linkname: str = "",
    headers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """An entry of a tar file; the size in its header may be any."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    info.size = len(content) if size is None else size
    info.pax_headers = dict(headers)
    form: Literal[1, 2] = 2 if headers else 1  # PAX_FORMAT, GNU_FORMAT
    header = info.tobuf(form, "utf-8", "surrogateescape")
    return header + content + bytes(-len(content) % tarfile.BLOCKSIZE)


END = bytes(2 * tarfile.BLOCKSIZE)


@st.composite
def _entries(draw: st.DrawFn, names: st.SearchStrategy[str]) -> bytes:
    kind = draw(st.sampled_from(TYPES[:1] * 8 + TYPES))
    contents = (
        RECORDS if kind in EXTENDED else (b"", b"x", b"{}\n" * 300, b"0" * 511 + b"\1", *RECORDS)
    )
    content: bytes = draw(st.sampled_from(contents))
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    try:
        return entry(
            draw(names),
            content,
            kind=kind,
            size=draw(st.sampled_from((None,) * 8 + SIZES)),
            linkname=draw(st.sampled_from(TARGETS)) if not headers else "",
            headers=headers,
        )
    except ValueError:  # a header that tarfile does not write
        return content


def hostile_tar(*names: str) -> st.SearchStrategy[bytes]:
    """A tar file of hostile entries, perhaps damaged."""
    some = st.lists(_entries(st.sampled_from(names or NAMES)), max_size=8).map(b"".join)
    whole = some.map(lambda content: content + END)
    return st.one_of(whole, whole, whole.flatmap(_edited_one))


def _edited_one(content: bytes) -> st.SearchStrategy[bytes]:
    return _edited((content,))


def packed(content: bytes) -> bytes:
    return gzip.compress(content, 1)


# Valid documents


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


TIMES = {"time": 1.7e9, "monotonic": 12.5}
_DEVICE = {"uuid": "GPU-1", "health": "healthy", "index": 0, "memory_used": 0, "memory_total": 9}


class _End(TypedDict):
    seconds: float
    exit_code: int
    cpu_user_s: float
    cpu_system_s: float
    oom_kills: int


_END = _End(seconds=1.5, exit_code=0, cpu_user_s=1.0, cpu_system_s=0.5, oom_kills=0)
EVENTS: tuple[Any, ...] = tuple(
    json.loads(event.to_json(**TIMES))
    for event in (
        RunStarted(protocol=PROTOCOL, run_id="r", platform="cpu", pid=7, machine={"cores": 2}),
        StageStarted(stage="install", command=("pip", "install", ".")),
        Output(stage="install", text="built\n"),
        StageFinished(stage="install", **_END),
        StageStarted(stage="pytest", command=("pytest",)),
        Output(stage="pytest", text="1 passed in 0.1s\n", more=True),
        ShardFinished(stage="pytest", shard=2, **_END, collected=9, selected=4, digest="0a"),
        StageFinished(stage="pytest", **_END, pytest_status=0),
        replace(StageFinished(stage="pytest", **_END), exit_code=137, signal=9, oom_kills=1),
        RerunStarted(stage="pytest", attempt=1, text="rerun 1"),
        RerunFinished(stage="pytest", attempt=1, **_END, signal=11),
        RerunsEnded(stage="pytest", reason="over"),
        LeaseWaiting(stage="pytest", text="waits", waited_s=3.0),
        LeaseTaken(stage="pytest", waited_s=30.0, devices=(_DEVICE,)),
        LeaseReleased(devices=({**_DEVICE, "health": "unhealthy"},)),
        LeaseFailed(reason="no device", stage="pytest"),
        StageLost(stage="pytest", reason="killed"),
        DiskFull(stage="pytest", text="full"),
        StageSkipped(stage="pytest", reason="install failed"),
        StageProgress(stage="pytest", done=1, total=2, failed=1, failing="t.py::test_a"),
        ArtifactMissing(name="ninja_log", path="build/.ninja_log"),
        ArtifactCut(name="traces", path="**/*.json", left_out=2),
        AgentRestarted(),
        RunFinished(exit_code=0, signal_received=15, interrupted=True),
        RunFinished(exit_code=0),
    )
)
STREAM = lines(*EVENTS)

_OPERATOR = {
    "overload": "add.out",
    "dtype": "float32",
    "slot": 8,
    "device": "cpu",
    "platform": "cpu",
    "active": True,
    "executed": 2,
    "ran_device": "cpu",
    "ran_slot": 8,
    "ran_platform": "cpu",
    "quarantine": "#1",
    "against_cpu": "differs: 1",
    "simulated": False,
    "kernel": "own",
}
_PROCESSOR = {"torch": "2.13.0", "onednn": None, "features": ["avx2"]}
_SELECTION = {
    "asked": "add",
    "operators": ["add"],
    "overloads": 1,
    "of": 9,
    "left_out": {"tests/a.py::test": 3},
}
_TEST = {"$report_type": "TestReport", "nodeid": "t.py::test[add.out-float32-cpu-slot8]"}
_PROPERTIES = [[name, value] for name, value in _OPERATOR.items()]
REPORTS: tuple[Any, ...] = (
    {"pytest_version": "9.2.0", "$report_type": "SessionStart"},
    {**_TEST, "when": "setup", "outcome": "passed", "duration": 0.1},
    {**_TEST, "when": "call", "outcome": "passed", "user_properties": _PROPERTIES},
    {**_TEST, "when": "teardown", "outcome": "passed", "duration": 0.1},
    {**_TEST, "when": "call", "outcome": "failed", "longrepr": {"reprcrash": {"message": "m"}}},
    {**_TEST, "when": "call", "outcome": "skipped", "longrepr": ["t.py", 1, "Skipped: no sample"]},
    {**_TEST, "when": "call", "outcome": "skipped", "wasxfail": "reason"},
    {**_TEST, "when": "setup", "outcome": "rerun"},
    {
        **_TEST,
        "when": "???",
        "outcome": "failed",
        "longrepr": f"worker 'gw0' crashed while running {_TEST['nodeid']!r}: SIGSEGV",
    },
    {
        **_TEST,
        "nodeid": "t.py::b",
        "when": "call",
        "outcome": "passed",
        "user_properties": [["processor", _PROCESSOR], ["selection", _SELECTION]],
    },
    {"$report_type": "SubtestReport", "nodeid": "t.py::c", "when": "call", "outcome": "failed"},
    {"$report_type": "CollectReport", "nodeid": "u.py", "outcome": "failed", "longrepr": "E"},
    {"$report_type": "WarningMessage", "message": "w"},
    {"$report_type": "SessionFinish", "exitstatus": 0},
    {"$report_type": "Shard", "shard": 2},
    {"$report_type": "SessionFinish", "exitstatus": 1},
)
ENVIRONMENT: dict[str, Any] = {
    "machine": {"cores": 4, "memory_bytes": 1 << 34, "cpu_model": "x", "instruction_sets": "AVX2"},
    "packages": {"torch": "2.13.0", "pytest": "9.2.0", "nanobind": "3.1.0"},
    "compiler_cache": {"tool": "ccache", "state": "warm", "hit_rate": 0.9, "empty": True},
    "devices": [{"uuid": "GPU-1", "name": "x", "driver": "1", "before": {}, "after": None}],
    "uncompiled": ["a.b"],
    "unpackaged": ["a.c"],
    "unmet": ["hatchling>=1"],
    "installed_files": [{"name": "tiny-1-py3-none-any.whl", "sha256": "0" * 64, "altered": 0}],
    "options": {"CXXFLAGS": "-O2"},
    "selection": {"operators": "add"},
    "compiler": "g++ 12",
    "cmake": "4",
    "ninja": "1",
    "python": "3.11",
    "torch": "2.13.0",
}
STAGE_LOG = b"""\
Processing /workspace
-- Configuring done (1.5s)
-- Generating done (0.1s)
  Created wheel for tiny: filename=tiny-1-py3-none-any.whl size=1234 sha256=ff
collected 3 items / 1 deselected / 2 selected
\x1b[32m================= 1 passed, 1 skipped in 0.12s (0:00:00) =================\x1b[0m
2 workers [3 items]
https://user:secret@host/simple ssh://a:b@host http%3A%2F%2Fu:p%40h
"""
NINJA_LOG = b"""\
# ninja log v7
0\t900\t1\tsrc/CMakeFiles/ops.dir/a.cc.o\tff
0\t950\t1\tsrc/CMakeFiles/ops.dir/__/generated/b.cc.o\tfe
950\t990\t1\t/workspace/build/libops.so\tfd
1\t5\t1\tgen/CMakeFiles/stamp\tfc
"""
CCACHE_LOG = b"""\
# ../src/a.cc
direct_cache_hit
local_storage_hit
# ../generated/b.cc
cache_miss
recache
"""
CCACHE_STATISTICS = b"cache_miss\t3\ndirect_cache_hit\t4\nfiles_in_cache\t7\n"
TRACE: dict[str, Any] = {
    "traceEvents": [
        *(
            {"ph": "X", "pid": 1, "tid": 1, "name": name, "ts": at, "dur": 90 - at}
            | {"args": {"detail": f"/usr/include/{name}"}}
            for at, name in enumerate(("Source", "InstantiateClass", "OptFunction"))
        ),
        {"ph": "b", "pid": 1, "tid": 1, "name": "Source", "ts": 5, "args": {"detail": "/a/../b"}},
        {"ph": "e", "pid": 1, "tid": 1, "name": "Source", "ts": 9},
    ]
}
COMMANDS: list[Any] = [
    {"directory": "/w", "command": 'ccache c++ -O2 -x cu -DA=\\"b\\" -I/a -o a.o -c a.cc'},
    {"directory": "/w", "arguments": ["c++", "-std=c++20", "-isystem", "/x", "-c", "b.cc"]},
]
OWNER: dict[str, Any] = {
    "run": "r",
    "platform": "cpu",
    "user": "u@h",
    "boot": "b",
    "namespace": "pid:[1]",
    "pid": 1,
    "started": 12,
    "since": 1.7e9,
}
PROBE: dict[str, Any] = {"status": "devices", "reason": None, "devices": [_DEVICE]}
SEARCH: dict[str, Any] = {"files": ["/dev/nvidia0"], "mounts": ["/usr/lib"], "groups": [44]}
SUPERVISOR: dict[str, Any] = {**_END, "signal": None, "timed_out": False}
TOOLS: dict[str, Any] = {
    name: ENVIRONMENT[name]
    for name in ("python", "packages", "uncompiled", "unpackaged", "unmet", "installed_files")
}


def tar(files: dict[str, bytes]) -> bytes:
    return b"".join(entry(name, content) for name, content in files.items()) + END


def sparse_tar() -> bytes:
    """A file with holes, as GNU tar's old format stores it."""
    buffer = io.BytesIO(entry("r/sparse", b"x" * 512, kind=tarfile.GNUTYPE_SPARSE) + END)
    header = bytearray(buffer.getvalue())
    header[386:410] = b"00000000000\0" + b"00000001000\0"
    header[482] = 1  # more blocks of the map follow
    header[483:495] = b"00000002000\0"
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header)
