"""Time traces of compilers: as clang and nvcc wrote them, and malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.agent import artifacts
from ci.facts.build import MOST_TRACED, read_build, traced_seconds
from ci.facts.files import ArchiveMember, read_archive
from ci.protocol.events import ArtifactCut
from ci.protocol.job import ArtifactPlan
from tests.ci.agent_job import Job

DATA = Path(__file__).parents[1] / "data"


def traced(*events: dict[str, Any]) -> dict[str, float]:
    return traced_seconds(
        [ArchiveMember("a.cc.json", json.dumps({"traceEvents": events}).encode())]
    )


def span(name: str, detail: str, start: int, duration: int, tid: int = 1) -> dict[str, Any]:
    fields = {"ph": "X", "pid": 1, "tid": tid, "ts": start, "dur": duration}
    return {**fields, "name": name, "args": {"detail": detail}}


def recorded(name: str) -> dict[str, float]:
    path = DATA / f"time-trace-{name}.json"
    return traced_seconds([ArchiveMember(path.name, path.read_bytes())])


def test_a_trace_of_clang() -> None:
    found = recorded("clang14")
    assert found["template Tower<291>::height"] == 0.021875  # those above it only wait for it
    assert found["template Tower<300>::height"] == 8e-05


def test_sources_in_a_trace_of_a_newer_clang() -> None:
    found = recorded("clang22")
    assert found["source src/tower.h"] == 0.011927
    assert found["template Tower<291>::height"] == 0.048249


def test_a_trace_of_nvcc() -> None:
    found = recorded("nvcc13")
    assert found["source /usr/include/c++/12/type_traits"] > 0.05


def test_shares_add_up() -> None:
    events = (
        span("Source", "/w/workspace/src/a.h", 0, 1_000_000),
        span("Source", "/usr/lib/gcc/12/../../../include/b.h", 100_000, 400_000),
        span("InstantiateClass", "vector<int>", 200_000, 100_000),
        span("ParseClass", "of no interest", 200_000, 50_000),
        span("OptFunction", "f()", 0, 250_000, tid=2),
    )
    assert traced(*events) == {
        "source src/a.h": 0.6,
        "source /usr/include/b.h": 0.3,
        "function f()": 0.25,
        "template vector<int>": 0.1,
    }


def test_units_are_summed_and_the_most_expensive_stay() -> None:
    trace = [span("OptFunction", f"f{n}()", n * 1000, n) for n in range(100)]
    content = json.dumps({"traceEvents": trace}).encode()
    found = traced_seconds([ArchiveMember("a.json", content), ArchiveMember("b.json", content)])
    assert len(found) == MOST_TRACED
    assert next(iter(found.items())) == ("function f99()", 0.000198)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[1]",
        b"{",
        b'{"traceEvents": {}}',
        b'{"traceEvents": [1, null, {}, {"ph": "e", "ts": 1}, {"ph": "b", "ts": 1}]}',
        b'{"traceEvents": [{"ph": "X", "ts": "1", "dur": 1, "name": "Source"}]}',
        b'{"traceEvents": [{"ph": "X", "ts": 1, "dur": 1, "name": "Source", "args": 7}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_trace_says_nothing(content: bytes) -> None:
    assert traced_seconds([ArchiveMember("a.json", content), ArchiveMember("a.txt", content)]) == {}


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1, 10**400])
def test_times_that_cannot_be_say_nothing(number: float) -> None:
    odd = span("Source", "a.h", 1, 1)
    assert traced({**odd, "dur": number}, {**odd, "ts": number}) == {}


def test_the_agent_brings_what_matches_a_pattern(job: Job) -> None:
    folder = job.workspace / "build/src/CMakeFiles"
    folder.mkdir(parents=True)
    (folder / "a.cc.json").write_text(json.dumps({"traceEvents": [span("Source", "a.h", 0, 9)]}))
    (folder / "a.cc.o").write_text("")
    job.artifacts = {"time_traces": "build/**/CMakeFiles/*.json", "none": "build/**/*.csv"}
    assert job.run() == 0
    build = read_build(job.results)
    assert build is not None
    assert build.details.traced == {"source a.h": 9e-06}
    assert [event["name"] for event in job.events("artifact_missing")] == ["none"]


def test_a_pattern_brings_the_largest_files_that_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "LARGEST_MATCHES", 250)
    for name, size in {"a": 100, "b": 200, "c": 49}.items():
        (tmp_path / f"{name}.json").write_text(" " * size)
    lack = artifacts.collect(ArtifactPlan(name="x", path="*.json"), tmp_path, tmp_path)
    assert lack == ArtifactCut(name="x", path="*.json", left_out=1)
    assert [member.name for member in read_archive(tmp_path / "x.tar.gz") or ()] == [
        "b.json",
        "c.json",
    ]
