"""One target for each reader of what a container wrote: a function of bytes, and its inputs.

A target raises only if the reader breaks a promise: an undocumented exception, a control character
in what is shown, a file outside of the results, or a result that cannot be stored.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hypothesis import strategies as st
from rich.console import Console

from ci.agent import compiler_cache, follow, lease, locks, machine, pytest_stage
from ci.engines import archives, devices, job
from ci.engines.logs import EventReader, LiveLogs
from ci.errors import CiError
from ci.facts import build, files
from ci.facts.events import compare_records, parse_events
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import read_output
from ci.facts.record import RunRecord
from ci.facts.result_files import ResultFiles
from ci.model.plan import ResultLimits
from ci.protocol.agent_files import CACHE_LOG
from ci.protocol.events import Event
from ci.protocol.job import Column, StagePlan
from ci.protocol.stage_kind import StageKind
from ci.run.progress import Progress
from ci.run.screen import draw
from ci.run.status import RunStatus
from ci.util.lines import LONGEST_EVENT, LONGEST_REPORT, LineSplitter
from ci.util.redaction import redact_folder
from ci.util.text import hide_values, mask_credentials, strip_controls
from tests.fuzz import documents as doc
from tests.fuzz.chain import check_chain
from tests.fuzz.documents import hostile_bytes, hostile_json, hostile_lines, hostile_tar

LIMITS = ResultLimits(total_bytes=1 << 20, entries=100, depth=10, name_bytes=255)
SECRET = "s3cr3t-value"  # noqa: S105 - planted


@dataclass(frozen=True, kw_only=True)
class Target:
    """A reader and its hostile inputs; ``share`` of all inputs of a run, relative to others."""

    name: str
    check: Callable[[bytes], None]
    inputs: st.SearchStrategy[bytes]
    share: float = 1.0


@cache
def _scratch(_process: int) -> Path:
    return Path(mkdtemp(prefix="infini-fuzz-"))


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, beside which nothing may appear."""
    above = _scratch(os.getpid())
    path = above / "results"
    path.mkdir()
    try:
        yield path
        assert [it.name for it in above.iterdir()] == ["results"]
    finally:
        shutil.rmtree(above)
        _scratch.cache_clear()


def lines_of(data: bytes, longest: int) -> Iterator[str]:
    cutter = LineSplitter(longest)
    yield from cutter.feed(data)
    yield from cutter.end()


def check_storable(value: Any) -> None:
    """JSON and a database must be able to hold it."""
    text = json.dumps(value, allow_nan=False, default=asdict, ensure_ascii=False)
    text.encode()
    assert "\0" not in text


def is_safe(text: str) -> bool:
    """Whether a terminal obeys nothing of a line but tabs."""
    return text.replace("\t", "").isprintable()


class Shown:
    """What reached the display."""

    def __init__(self) -> None:
        self.output = io.StringIO()
        self._progress = Progress(Console(file=self.output, width=200))
        self._run = RunStatus(began=0.0)

    def event(self, event: Event) -> None:
        self._progress.event("CPU", event)
        self._run.platform("CPU").apply(event, 0.0)

    def check(self) -> None:
        text = self.output.getvalue().replace("\n", "")
        assert is_safe(text)
        for width in (80, 200):
            for line in draw(self._run, width=width, height=24, now=1.0):
                assert line.plain.isprintable()
                assert line.cell_len == width - 1


# The engine's side


def check_stream(data: bytes) -> None:
    """The agent's standard output, whatever the pieces in which it arrives."""
    shown = Shown()
    with folder() as results:
        logs = {name: results / f"{name}.log" for name in ("install", "pytest")}
        reader = EventReader(LiveLogs(shown, logs, most_bytes=1 << 20), results)
        size = 1 + len(data) // 3
        for start in range(0, len(data), size):
            reader.feed(data[start : start + size])
        reader.restart()
        reader.feed(data)
        reader.complete()
        names = {path.name for path in results.iterdir()}
        assert names <= {"install.log", "pytest.log", "agent.log", "engine-events.jsonl"}
        kept = ResultFiles(folder=results).record
        assert not kept.unreadable_lines
    shown.check()


def check_events(data: bytes) -> None:
    half = len(data) // 2
    one, other = (parse_events(lines_of(part, LONGEST_EVENT)) for part in (data[:half], data))
    for record in (one, other):
        _read_everything(record)
    for text in compare_records(one, other):
        text.encode()


def _read_everything(record: RunRecord) -> None:
    for event in record.events:
        check_storable(event)
    _ = record.protocol, record.finished_stages, record.unfinished_stages
    _ = record.changed_devices, record.reruns, record.run_finished


def check_report_log(data: bytes) -> None:
    log = parse_log(lines_of(data, LONGEST_REPORT))
    check_storable([test for test in log.tests if test.operator is None])
    check_storable([log.running, log.crashed, log.exit_status])
    with folder() as results:
        path = results / "pytest.jsonl"
        path.write_bytes(data)
        pytest_stage.failed_tests(path)
        pytest_stage.unfinished_tests(path)


def check_stage_log(data: bytes) -> None:
    with folder() as results:
        (results / "pytest.log").write_bytes(data)
        output = ResultFiles(folder=results).output(STAGES[-1])
        text = "".join(output.last_lines)
        assert is_safe(text)
        build.read_logs(files.read_log_lines(results / "pytest.log"))
    plain = data.decode(errors="replace")
    read_output(plain.splitlines())
    assert is_safe(strip_controls(mask_credentials(plain)).replace("\n", ""))


def check_build_files(data: bytes) -> None:
    """Ninja's log and ccache's, one after the other."""
    with folder() as results:
        ninja, _, ccache = data.partition(b"\0")
        (results / build.NINJA_LOG).write_bytes(ninja)
        (results / CACHE_LOG).write_bytes(ccache)
        found = build.read_build(results)
        if found is not None:
            check_storable([vars(found.details)["units"], found.result.model_dump()])
    text = data.decode(errors="replace")
    compiler_cache.hits_and_misses(compiler_cache.parse_statistics(text))
    compiler_cache.hits_and_misses(compiler_cache.parse_statistics_log(text.splitlines()))


def check_trace(data: bytes) -> None:
    found = build.traced_seconds([files.ArchiveMember("a.json", data)])
    assert all(seconds > 0 for seconds in found.values())
    check_storable(found)


def check_flags(data: bytes) -> None:
    check_storable(build.compiler_flags(data.decode(errors="replace")))


def check_environment(data: bytes) -> None:
    with folder() as results:
        (results / "environment.json").write_bytes(data)
        check_storable(ResultFiles(folder=results).environment)
        job.is_cache_empty(results)


def check_archive(data: bytes) -> None:
    with folder() as results:
        outside = results.parent / "results" / "in"
        outside.mkdir()
        for links in (False, True):
            chunks = (data[start : start + 700] for start in range(0, len(data), 700))
            found = archives.extract(
                chunks, outside, strip=1, links=links, reserved={"host.lock"}, limits=LIMITS
            )
            assert all(map(is_safe, found))
            assert [it.name for it in results.iterdir()] == ["in"]
            for path in outside.rglob("*"):
                assert Path(os.path.realpath(path)).is_relative_to(outside)
            used = sum(path.lstat().st_blocks for path in outside.rglob("*")) * 512
            assert used <= 8 * LIMITS.total_bytes
        path = results / "a.tar.gz"
        for content in (data, doc.packed(data)):
            path.write_bytes(content)
            for member in files.read_archive(path) or ():
                assert isinstance(member.content, bytes)


def check_redaction(data: bytes) -> None:
    """After it no file holds the secret, also not compressed."""
    hide_values([SECRET])
    try:
        with folder() as results:
            (results / "a.log").write_bytes(data)
            (results / "b.tar.gz").write_bytes(data)
            (results / "c.gz").write_bytes(doc.packed(data))
            redact_folder(results)
            for path in results.iterdir():
                content = path.read_bytes()
                assert SECRET.encode() not in content
                if path.name == "c.gz":
                    assert SECRET.encode() not in gzip.decompress(content)
    finally:
        hide_values([])


# The agent's side, and files that containers share


def check_agent(data: bytes) -> None:
    text = data.decode(errors="replace")
    with folder() as results:
        (results / "statuses").mkdir()
        for number, part in enumerate(data.split(b"\n")[:20]):
            (results / "statuses" / f"{number}-1-0.log").write_bytes(part)
        status = pytest_stage.read_runs(results).pytest_status
        assert status is None or 0 <= status <= 255
        path = results / "owner"
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        owner = locks.read_owner(descriptor)
        os.close(descriptor)
        if owner is not None:
            locks.owner_text(owner)
            hash((owner["pid"], owner["started"]))
            locks._start_ticks(owner["pid"])
    json.dumps(machine.read_tools(text), allow_nan=False)
    end = follow.read_end(data)
    if end is not None:
        assert type(end.exit_code) is int
    found = lease.read_answer(data)
    for device in found.devices:
        _ = device["uuid"], device["index"], device["health"], device["memory_used"]
        hash(device["uuid"])
    with suppress(CiError):
        devices.read_files(data, "x")


STAGES = tuple(
    StagePlan(name=name, kind=kind, command=("x",), column=column, timeout_s=9.0, environment={})
    for name, kind, column in (
        ("install", StageKind.COMMAND, Column.BUILD_INSTALL),
        ("pytest", StageKind.PYTEST, Column.PYTEST),
    )
)


def joined(*parts: bytes) -> bytes:
    """An input of the chain: its stream and its archive, each behind its length."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


RESULTS_TAR = doc.tar(
    {
        "r/events.jsonl": doc.lines(*doc.EVENTS),
        "r/pytest.jsonl": doc.lines(*doc.REPORTS),
        "r/pytest.rerun-1.jsonl": doc.lines(*doc.REPORTS),
        "r/environment.json": json.dumps(doc.ENVIRONMENT).encode(),
        "r/pytest.log": doc.STAGE_LOG,
        "r/ninja_log": doc.NINJA_LOG,
        "r/junit.xml": b"<testsuites/>",
    }
)


@st.composite
def _results(draw: st.DrawFn) -> bytes:
    """A tar file of results of which some files are hostile."""
    reports, environments = hostile_lines(*doc.REPORTS), hostile_json(doc.ENVIRONMENT)
    trace = hostile_json(doc.TRACE).map(lambda it: doc.packed(doc.tar({"a.json": it})))
    hostile = {
        "events.jsonl": hostile_lines(*doc.EVENTS),
        "pytest.jsonl": reports,
        "pytest.rerun-1.jsonl": reports,
        f"pytest.rerun-{'9' * 20}.jsonl": reports,
        "environment.json": environments,
        "install.log": hostile_bytes(doc.STAGE_LOG),
        "pytest.log": hostile_bytes(doc.STAGE_LOG),
        "ninja_log": hostile_bytes(doc.NINJA_LOG),
        "ccache.txt": hostile_bytes(doc.CCACHE_LOG),
        "compile_commands.json": hostile_json(doc.COMMANDS),
        "generated.tar.gz": hostile_tar("generated/a.cc").map(doc.packed),
        "time_traces.tar.gz": trace,
        "junit.xml": hostile_bytes(b"<testsuites/>"),
        "\udcff\x1b[2J": st.just(b"x"),
    }
    content = {
        "events.jsonl": doc.lines(*doc.EVENTS),
        "pytest.jsonl": doc.lines(*doc.REPORTS),
        "pytest.log": doc.STAGE_LOG,
        "environment.json": json.dumps(doc.ENVIRONMENT).encode(),
    }
    for name in draw(st.lists(st.sampled_from([*hostile]), min_size=1, max_size=4)):
        content[name] = draw(hostile[name])
    return doc.tar({f"r/{name}": text for name, text in content.items()})


_streams = st.one_of(st.just(doc.STREAM), hostile_lines(*doc.EVENTS))
_archives = st.one_of(_results(), _results(), hostile_tar(), hostile_bytes(RESULTS_TAR))

TARGETS: tuple[Target, ...] = (
    Target(
        name="stream",
        check=check_stream,
        inputs=st.one_of(hostile_lines(*doc.EVENTS), hostile_bytes(doc.STREAM)),
    ),
    Target(
        name="events",
        check=check_events,
        inputs=st.one_of(hostile_lines(*doc.EVENTS), hostile_bytes(doc.STREAM)),
    ),
    Target(
        name="report log",
        check=check_report_log,
        inputs=st.one_of(hostile_lines(*doc.REPORTS), hostile_bytes(doc.lines(*doc.REPORTS))),
    ),
    Target(name="stage log", check=check_stage_log, inputs=hostile_bytes(doc.STAGE_LOG)),
    Target(
        name="build files",
        check=check_build_files,
        inputs=hostile_bytes(
            doc.NINJA_LOG + b"\0" + doc.CCACHE_LOG, doc.CCACHE_STATISTICS, doc.CCACHE_LOG
        ),
    ),
    Target(
        name="time trace",
        check=check_trace,
        inputs=st.one_of(hostile_json(doc.TRACE), hostile_bytes(json.dumps(doc.TRACE).encode())),
    ),
    Target(
        name="compile commands",
        check=check_flags,
        inputs=st.one_of(
            hostile_json(doc.COMMANDS), hostile_bytes(json.dumps(doc.COMMANDS).encode())
        ),
    ),
    Target(
        name="environment",
        check=check_environment,
        inputs=st.one_of(
            hostile_json(doc.ENVIRONMENT), hostile_bytes(json.dumps(doc.ENVIRONMENT).encode())
        ),
    ),
    Target(
        name="archive",
        check=check_archive,
        inputs=st.one_of(hostile_tar(), hostile_bytes(RESULTS_TAR, doc.sparse_tar())),
    ),
    Target(
        name="redaction",
        check=check_redaction,
        inputs=st.one_of(
            hostile_bytes(f"x{SECRET}y".encode(), doc.packed(SECRET.encode() * 9)),
            hostile_bytes(doc.packed(doc.tar({"a": SECRET.encode()}))),
        ),
    ),
    Target(
        name="agent",
        check=check_agent,
        inputs=st.one_of(
            *(hostile_json(it) for it in (doc.OWNER, doc.PROBE, doc.SUPERVISOR, doc.TOOLS)),
            *(hostile_bytes(json.dumps(it).encode()) for it in (doc.OWNER, doc.SEARCH)),
            hostile_json(doc.SEARCH),
            hostile_bytes(b"0", b"1\n137\n"),
        ),
    ),
    Target(
        name="chain",
        check=check_chain,
        inputs=st.tuples(_streams, _archives).map(lambda it: joined(*it)),
        share=0.2,  # a run, its store and all reports: an input takes a second
    ),
)
