"""A sample of the inputs of ``python -m tests.fuzz``, and what it found."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tests.fuzz.__main__ as main
from tests.cases import narrowed
from tests.fuzz import bounds
from tests.fuzz import documents as doc
from tests.fuzz.bounds import TooSlowError, run_within_time
from tests.fuzz.targets import TARGETS, Target, joined

SAMPLE = 50  # inputs of a target; all take 20 CPU-seconds
BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("target", TARGETS, ids=lambda it: it.name)
def test_no_input_breaks_a_promise(target: Target) -> None:
    @settings(
        max_examples=round(SAMPLE * target.share),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(target.inputs)
    def check(data: bytes) -> None:
        run_within_time(target.check, data)

    check()


def ninja_log(count: int, name: str) -> bytes:
    lines = (f"0\t9\t1\td{number}/CMakeFiles/x.dir/{name}\t{number}" for number in range(count))
    return "\n".join(["# ninja log v7", *lines]).encode()


def of_one_name() -> bytes:
    sources = "".join(f"# e{number}/a.cc\ncache_miss\n" for number in range(20_000))
    return ninja_log(20_000, "a.cc.o") + b"\0" + sources.encode()


def extended(content: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return doc.entry("x", content, kind=kind) + doc.entry("r/a", b"x")


def map_of_holes(numbers: int) -> bytes:
    """A file that states more holes than it has bytes."""
    headers = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")]
    return doc.entry("r/a", b"%d\n" % numbers + b"0\n" * numbers * 2, headers=headers) + doc.END


def reports(*devices: str) -> bytes:
    """A log of operator tests, each on a device of its own."""
    test = {"$report_type": "TestReport", "outcome": "passed"}
    lines = []
    for number, device in enumerate(devices):
        recorded = {"overload": "add", "slot": 8, "executed": 1, "device": device}
        properties = [*map(list, {**recorded, "ran_device": f"{device}x"}.items())]
        named = {**test, "nodeid": f"t.py::test[{number}]"}
        lines += [{**named, "when": "call", "user_properties": properties}]
        lines += [{**named, "when": "teardown"}]
    return doc.lines(*lines, {"$report_type": "SessionFinish", "exitstatus": 0})


def run_of(**results: bytes) -> bytes:
    """A run of the chain with some files of results, by name up to the suffix ``.jsonl``."""
    files = {f"r/{name.replace('_', '.')}.jsonl": content for name, content in results.items()}
    return joined(doc.STREAM, doc.tar({"r/pytest.log": doc.STAGE_LOG, **files}))


def changed(document: dict[str, object], **fields: object) -> bytes:
    return json.dumps({**document, **fields}).encode()


LONG_NAME = "\N{FACE WITHOUT MOUTH}" * 60
FOUND: dict[str, tuple[str, Callable[[], bytes]]] = {
    "addresses without a space": ("stage log", lambda: b"://" * 40_000),
    "addresses behind a user": ("stage log", lambda: b"@" + b"%3A%2F%2F" * 20_000),
    "a long number in a header": ("archive", lambda: extended(b"60007 comment=" + b"1" * 60_000)),
    "a name of two lines": (
        "archive",
        lambda: doc.entry("r/a\nb", kind=tarfile.SYMTYPE, linkname="x") + doc.END,
    ),
    "a map that ends early": ("archive", lambda: doc.sparse_tar()[:512]),
    "units of one name": ("build files", of_one_name),
    "a unit in many folders": ("build files", lambda: ninja_log(1, "__/" * 1_000_000 + "a.cc.o")),
    "a counter in other digits": ("build files", lambda: "cache_miss\t²".encode()),
    "an option with many values": (
        "compile commands",
        lambda: json.dumps([{"command": "c++ -x " + "a " * 900_000}]).encode(),
    ),
    "a lock whose owner is a list": ("agent", lambda: changed(doc.OWNER, started=[])),
    "a lock of the far future": ("agent", lambda: changed(doc.OWNER, since=1e17)),
    "a supervisor's deep answer": ("agent", lambda: b"[" * 100_000),
    "a supervisor's other types": ("agent", lambda: changed(doc.SUPERVISOR, exit_code="0")),
    "devices that are numbers": ("agent", lambda: changed(doc.PROBE, devices=[1])),
    "a device without facts": ("agent", lambda: changed(doc.PROBE, devices=[{"index": 0}])),
    "device files that are none": ("agent", lambda: changed(doc.SEARCH, files=1)),
    "a test on each of many devices": (
        "chain",
        lambda: run_of(pytest=reports(*("d" * 200 + str(number) for number in range(12_000)))),
    ),
    "many long names": (
        "chain",
        lambda: run_of(**{f"{number}{LONG_NAME}": b"" for number in range(6_100)}),
    ),
}

LARGE: dict[str, Callable[[], bytes]] = {
    "records within records": lambda: b"".join(
        extended(b"2 " * 30_000 + b"=", kind) for kind in doc.EXTENDED * 3
    ),
    "a map of 20 million holes": lambda: map_of_holes(10_000_000),
}


@pytest.mark.parametrize("name", narrowed(FOUND, kept=len(FOUND) - 2))  # which are large
def test_what_was_found_stays_fixed(name: str) -> None:
    target, make = FOUND[name]
    run_within_time(BY_NAME[target].check, make())


@pytest.mark.parametrize("name", LARGE)
def test_what_took_memory_stays_fixed(name: str, tmp_path: Path) -> None:
    """In a process of its own, whose memory is bounded."""
    (tmp_path / "input").write_bytes(LARGE[name]())
    command = [sys.executable, "-m", "tests.fuzz", "--input", str(tmp_path / "input"), "archive"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_endless_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(_: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(bounds, "MOST_CPU_S", 0.05)
    with pytest.raises(TooSlowError, match=r"more than 0\.05 CPU-seconds"):
        run_within_time(check, b"")


def test_an_input_that_breaks_a_promise_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_: bytes) -> None:
        raise LookupError("undocumented")

    monkeypatch.setattr(main, "KEPT", tmp_path)
    with pytest.raises(LookupError, match="undocumented"):
        main.keep_failing(Target(name="a b", check=check, inputs=st.binary()))(b"input")
    [kept] = tmp_path.iterdir()
    assert kept.name.startswith("a-b-")
    assert kept.read_bytes() == b"input"
