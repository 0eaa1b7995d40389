"""Tests shared by several processes: who runs which, in the real agent with real suites."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.agent.pytest_stage import PytestRuns
from ci.agent.shard_plugin import OVERHEAD_US, assign_shards
from ci.agent.shards import (
    ShardCollection,
    combined_end,
    combined_runs,
    processors_of,
    read_collection,
)
from ci.protocol.agent_files import shard_file
from ci.protocol.events import CommandEnd
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job, device_job

FILES = ("tests/test_a.py", "tests/test_b.py", "other.py")
NAMES = st.builds(
    lambda file, function, n: f"{file}::test_{function}[{n}]",
    st.sampled_from(FILES),
    st.sampled_from("abc"),
    st.integers(0, 30),
)
GROUPS = st.sampled_from(("", "", "", "one", "two"))
SECONDS = st.floats(0, 1000, allow_nan=False)


@given(
    tests=st.dictionaries(NAMES, GROUPS, max_size=60),
    recorded=st.dictionaries(NAMES, SECONDS, max_size=60),
    shards=st.integers(1, 8),
    order=st.randoms(),
)
def test_each_test_has_one_shard_which_no_order_changes(
    tests: dict[str, str], recorded: dict[str, float], shards: int, order: Any
) -> None:
    found = assign_shards(tests, recorded, shards)
    assert found.keys() == tests.keys()
    assert set(found.values()) <= set(range(shards))
    shuffled = list(tests.items())
    order.shuffle(shuffled)
    reverse = dict(reversed(recorded.items()))
    assert assign_shards(dict(shuffled), reverse, shards) == found
    places = {(group, found[name]) for name, group in tests.items() if group}
    assert len(places) == len({group for group, _ in places})


def longest(found: Mapping[str, int], recorded: Mapping[str, float]) -> float:
    loads: Counter[int] = Counter()
    for name, shard in found.items():
        loads[shard] += round(recorded[name] * 1e6) + OVERHEAD_US
    return max(loads.values())


@given(recorded=st.dictionaries(NAMES, SECONDS, min_size=1, max_size=7), shards=st.integers(1, 3))
def test_the_longest_shard_is_within_a_third_of_the_optimum(
    recorded: dict[str, float], shards: int
) -> None:
    names = list(recorded)
    best = min(
        longest(dict(zip(names, places, strict=True)), recorded)
        for places in itertools.product(range(shards), repeat=len(names))
    )
    found = assign_shards(dict.fromkeys(names, ""), recorded, shards)
    assert longest(found, recorded) <= best * 4 / 3


def test_files_stay_together_where_that_costs_little() -> None:
    """Twenty files of equal tests: no file is split; one file of many tests is."""
    small = {f"test_{file}.py::test[{n}]": "" for file in range(40) for n in range(3)}
    found = assign_shards(small, {}, 2)
    assert Counter(found.values()) == {0: 60, 1: 60}
    assert len({(name.partition("::")[0], shard) for name, shard in found.items()}) == 40
    large = {f"test_all.py::test[{n}]": "" for n in range(160)}
    found = assign_shards(large, {}, 2)
    assert Counter(found.values()) == {0: 80, 1: 80}
    runs = [shard for shard, _ in itertools.groupby(found[name] for name in sorted(large))]
    assert len(runs) <= 16


def test_an_unknown_test_counts_as_the_median_of_the_known() -> None:
    tests = {f"{name}.py::test": "" for name in "abcdef"}
    recorded = {"a.py::test": 3.0, "b.py::test": 1.0, "c.py::test": 1.0}
    found = assign_shards(tests, recorded, 2)
    assert Counter(found.values())[found["a.py::test"]] == 2  # 3 + 1 against 1 + 1 + 1 + 1


def end(**changes: Any) -> CommandEnd:
    return CommandEnd(**{"seconds": 1.0, "exit_code": 0, **changes})


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 0], 0), ([5, 0], 0), ([5, 5], 5), ([0, 1, 5], 1), ([1, 2], 2), ([1, 137, 3], 137)],
)
def test_the_worst_exit_code_counts(codes: list[int], expected: int) -> None:
    assert combined_end([end(exit_code=code) for code in codes]).exit_code == expected


def test_a_stage_ends_as_its_worst_shard_and_takes_as_long_as_the_longest() -> None:
    killed = end(exit_code=139, signal=11, seconds=2.0, cpu_user_s=1.0, oom_kills=1)
    late = end(exit_code=143, signal=15, timed_out=True, seconds=3.0, cpu_user_s=2.0, oom_kills=1)
    other = end(seconds=9.0, cpu_user_s=None, peak_rss_bytes=5)
    found = combined_end([killed, other, late])
    assert (found.signal, found.timed_out, found.seconds) == (15, True, 9.0)
    assert (found.cpu_user_s, found.oom_kills, found.peak_rss_bytes) == (3.0, 1, 5)
    assert combined_end([killed, other]).crashed


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [([None, None], None), ([0, 0], 0), ([0, None], None), ([5, None], None), ([1, None], 1),
     ([5, 0], 0), ([2, 1], 2)],
)  # fmt: skip
def test_statuses_of_wrapped_shards(statuses: list[int | None], expected: int | None) -> None:
    runs = [PytestRuns(status, number) for number, status in enumerate(statuses)]
    assert combined_runs(runs) == PytestRuns(expected, pytest_runs=1)


@pytest.mark.parametrize(
    ("own", "shards", "expected"),
    [
        ({0, 1, 2, 3}, 1, [[]]),
        ({0, 1, 2, 3}, 2, [[0, 1], [2, 3]]),
        ({1, 3, 5}, 2, [[1], [3, 5]]),
        ({0, 1}, 3, [[], [], []]),
    ],
)
def test_shards_get_their_part_of_the_processors(
    monkeypatch: pytest.MonkeyPatch, own: set[int], shards: int, expected: list[list[int]]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: own)
    assert [processors_of(shard, shards) for shard in range(shards)] == expected


@pytest.mark.parametrize(
    "content", [b"", b"3 1", b"3 1 " + b"g" * 64, b"\xff 1 " + b"a" * 64, b"3 1 " + b"a" * 65]
)
def test_a_report_that_the_plugin_did_not_write(tmp_path: Path, content: bytes) -> None:
    assert read_collection(tmp_path) == ShardCollection()
    (tmp_path / "report").mkdir()
    (tmp_path / "report/collected").write_bytes(content)
    assert read_collection(tmp_path) == ShardCollection()
    (tmp_path / "report/collected").unlink()
    os.mkfifo(tmp_path / "report/collected")
    assert read_collection(tmp_path) == ShardCollection()


SUITE = """\
import os, pathlib
import pytest

@pytest.mark.parametrize("n", range(10))
def test_good(n): print("hello", n)

def test_bad(): assert 1 == 2

@pytest.mark.skip(reason="not now")
def test_idle(): pass
"""


def shard_stage(job: Job, *arguments: str, shards: int = 2, **changes: Any) -> None:
    options = ("-p", "no:cacheprovider", "-p", "pytest_reportlog.plugin")
    # Only the plugins that count: the others of a development environment take a second.
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **changes.pop("environment", {})}
    command = (sys.executable, "-m", "pytest", *options, *arguments)
    fields = {"kind": StageKind.PYTEST, "environment": environment, "shards": shards, **changes}
    job.stage("pytest", *command, **fields)


def write(job: Job, **files: str) -> None:
    for name, text in files.items():
        (job.workspace / f"{name}.py").write_text(text)


def ran(job: Job, shard: int) -> set[str]:
    """Return the tests in the log of a shard."""
    return logged_tests(job.results / shard_file("pytest.jsonl", shard))


def logged_tests(log: Path) -> set[str]:
    records = map(json.loads, log.read_text().splitlines())
    return {it["nodeid"] for it in records if it["$report_type"] == "TestReport"}


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "2")], ids=["plain", "xdist"])
def test_shards_run_each_test_once(job: Job, workers: tuple[str, ...]) -> None:
    write(job, test_a=SUITE, test_b=SUITE)
    shard_stage(job, *workers)
    assert job.run() == 1
    first, second = ran(job, 1), ran(job, 2)
    assert (len(first | second), len(first & second)) == (24, 0)
    assert min(len(first), len(second)) == 12
    ends = job.events("shard_finished")
    counts = [(it["shard"], it["collected"], it["selected"]) for it in ends]
    assert counts == [(1, 24, 12), (2, 24, 12)]
    assert len({it["digest"] for it in ends}) == 1
    found = job.finished("pytest")
    assert (found["exit_code"], found["seconds"]) == (1, max(it["seconds"] for it in ends))
    assert (job.results / "junit.shard-2.xml").read_text().startswith("<?xml")
    assert "10 passed" in (job.results / "pytest.shard-1.log").read_text()
    last = [it for it in job.printed if it["event"] == "progress"][-1]
    assert (last["done"], last["total"], last["failed"]) == (24, 24, 2)


def test_tests_are_shared_by_their_recorded_times(job: Job) -> None:
    write(job, test_a="\n".join(f"def test_{n}(): pass" for n in range(4)))
    shard_stage(job, seconds={"test_a.py::test_0": 3.0, "test_a.py::test_1": 1.0})
    assert job.run() == 0
    assert {len(ran(job, 1)), len(ran(job, 2))} == {1, 3}


def test_recorded_times_are_of_names_without_the_folder_of_a_run(job: Job) -> None:
    (job.workspace.parent / "venv").mkdir()  # as on the host engine
    named = "import os, pytest\n@pytest.mark.parametrize('n', range(4), ids=lambda n: {})\n{}"
    test = "def test_a(n): pass"
    write(job, test_a=named.format("f'{os.getcwd()}/{n}'", test))
    name = "test_a.py::test_a[/workspace/{}]"
    shard_stage(job, seconds={name.format(0): 3.0, name.format(1): 1.0})
    assert job.run() == 0
    assert {len(ran(job, 1)), len(ran(job, 2))} == {1, 3}
    [started] = job.events("run_started")
    assert str(job.workspace.parent) in started["folders"]


def test_one_test_for_three_shards(job: Job) -> None:
    write(job, test_a="def test_a(): pass")
    shard_stage(job, shards=3)
    assert job.run() == 0
    assert [it["exit_code"] for it in job.events("shard_finished")] == [0, 5, 5]
    assert job.finished("pytest")["exit_code"] == 0


def test_a_shard_that_dies_takes_no_other_with_it(job: Job) -> None:
    crash = "import os, signal\ndef test_a(): os.kill(os.getpid(), signal.SIGSEGV)\n"
    write(job, test_a=crash, test_b="def test_b(): pass\n")
    shard_stage(job, seconds={"test_a.py::test_a": 1.0, "test_b.py::test_b": 1.0})
    assert job.run() == 1
    ends = {it["shard"]: it["signal"] for it in job.events("shard_finished")}
    assert sorted(ends.values(), key=str) == [signal.SIGSEGV, None]
    assert job.finished("pytest")["signal"] == signal.SIGSEGV


def test_a_shard_that_reaches_the_time_limit_is_ended(job: Job) -> None:
    endless = "import signal\ndef test_a(): signal.pause()\n"
    write(job, test_a=endless, test_b="def test_b(): pass\n")
    shard_stage(job, timeout_s=5.0)
    assert job.run() == 1
    ends = [it["timed_out"] for it in job.events("shard_finished")]
    assert sorted(ends) == [False, True]
    assert job.finished("pytest")["timed_out"]


def test_a_supervisor_that_is_killed_ends_all_shards(job: Job) -> None:
    """The parent of a pytest process is its supervisor."""
    kill = "import os, signal\ndef test_a():\n    os.kill(os.getppid(), signal.SIGKILL)\n"
    wait = "import signal\ndef test_b(): signal.pause()\n"
    write(job, test_a=f"{kill}    signal.pause()\n", test_b=wait)
    shard_stage(job)
    assert job.run() == 1
    [lost] = job.events("stage_lost")
    assert lost["reason"] == "the supervisor of stage pytest was killed by SIGKILL"
    assert job.events("stage_finished") == []


def test_collection_hooks_of_the_suite_come_first(job: Job) -> None:
    """A conftest that reverses, and a mark expression: what remains is shared."""
    reverse = "def pytest_collection_modifyitems(items): items.reverse()\n"
    write(job, conftest=reverse, test_a=SUITE, test_b="def test_good(): pass\n")
    shard_stage(job, "-k", "good")
    assert job.run() == 0
    assert [it["collected"] for it in job.events("shard_finished")] == [11, 11]
    assert len(ran(job, 1) | ran(job, 2)) == 11
    logged = (job.results / "pytest.shard-1.log").read_text()
    places = [int(n) for n in re.findall(r"hello (\d)", logged)]
    assert places == sorted(places, reverse=True)


def test_groups_of_xdist_stay_in_one_shard(job: Job) -> None:
    marked = "import pytest\n@pytest.mark.xdist_group('it')\n@pytest.mark.parametrize('n',"
    write(job, test_a=f"{marked} range(6))\ndef test(n): pass\n", test_b=SUITE)
    shard_stage(job, "-p", "xdist.plugin", "-n", "1", "--dist", "loadgroup")
    assert job.run() == 1
    grouped = [sum(name.startswith("test_a.py") for name in ran(job, it)) for it in (1, 2)]
    assert sorted(grouped) == [0, 6]


def write_look(job: Job, seen: str) -> None:
    """Write two tests that record what they see."""
    look = "import os, pathlib\ndef test_a(): "
    look += f"pathlib.Path(__file__ + '.seen').write_text({seen})\n"
    write(job, test_a=look, test_b=look)


def test_each_shard_has_processors_of_its_own(job: Job) -> None:
    write_look(job, "repr(sorted(os.sched_getaffinity(0)))")
    shard_stage(job)
    assert job.run() == 0
    seen = [set(json.loads(path.read_text())) for path in job.workspace.glob("*.seen")]
    assert len(seen) == 2
    own = os.sched_getaffinity(0)
    assert seen[0] | seen[1] == own
    assert not seen[0] & seen[1] or len(own) == 1


@pytest.mark.parametrize(
    ("count", "expected"), [(1, ["GPU-0", "GPU-1"]), (2, ["GPU-0,GPU-1", "GPU-2,GPU-3"])]
)
def test_each_shard_has_devices_of_its_own(
    job: Job, tmp_path: Path, count: int, expected: list[str]
) -> None:
    usual = {"health": "healthy", "memory_total": 100, "memory_used": 0}
    devices = [{"uuid": f"GPU-{number}", "index": number, **usual} for number in range(4)]
    (tmp_path / "devices.json").write_text(json.dumps({"status": "devices", "devices": devices}))
    job.devices = device_job(tmp_path, count=count, shards=2)
    write_look(job, "os.environ['VISIBLE']")
    job.python("before", "import os; print(os.environ['VISIBLE'])", device=True)
    shard_stage(job, device=True)
    assert job.run() == 0
    seen = [path.read_text() for path in job.workspace.glob("*.seen")]
    assert sorted(seen) == expected
    assert job.log("before").split() == expected[:1]
    [taken] = job.events("lease_taken")
    assert len(taken["devices"]) == 2 * count


def test_failed_tests_of_all_shards_are_rerun_in_one_process(job: Job) -> None:
    write(job, test_a=SUITE, test_b=SUITE)
    shard_stage(job, reruns=1)
    assert job.run() == 1
    [rerun] = job.events("rerun_finished")
    assert rerun["exit_code"] == 1
    log = job.results / "pytest.rerun-1.jsonl"
    assert logged_tests(log) == {"test_a.py::test_bad", "test_b.py::test_bad"}


def test_a_wrapper_runs_pytest_in_each_shard(job: Job) -> None:
    write(job, test_a=SUITE)
    script = f'{sys.executable} -m pytest -p no:cacheprovider "$@"; exit 7'
    job.stage("pytest", "sh", "-c", script, "sh", kind=StageKind.PYTEST, shards=2)
    assert job.run() == 1
    assert sorted(it["pytest_status"] for it in job.events("shard_finished")) == [0, 1]
    found = job.finished("pytest")
    assert (found["exit_code"], found["pytest_status"]) == (7, 1)


def test_no_folder_of_a_plugin_remains(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    write(job, test_a=SUITE)
    shard_stage(job)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    job.run()
    assert not list((tmp_path / "tmp").glob("infini-ci-*"))
