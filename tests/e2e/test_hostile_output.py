"""Code under test that writes into the agent's output and records, on real engines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ci.errors import ExitCode
from ci.facts.sentences import on_harness
from ci.facts.sentences.on_harness import Source
from ci.gates.rules import exit_code
from ci.model.plan import ResultLimits
from ci.model.verdicts import Harness, Product
from ci.protocol.events import RunFinished
from ci.protocol.stage_kind import StageKind
from ci.run.platform import judge_platform
from tests.ci.hostile import FORGED_TIMES, LONGEST, suite
from tests.e2e.benches import Bench
from tests.e2e.plans import REQUIREMENTS, python_stage, stage

PYTEST = stage("pytest", "python", "-m", "pytest", "tests/test_tiny.py", kind=StageKind.PYTEST)
FILES = ("pytest.jsonl", "events.jsonl")


@pytest.mark.usefixtures("one_user")
@pytest.mark.parametrize(
    ("places", "failing", "product", "code"),
    [
        (("stdout",), "", Product.PASSED, ExitCode.PASSED),
        (("stdout",), "\ndef test_b(): assert False\n", Product.FAILED, ExitCode.PRODUCT_FAILURE),
        # The lost lines of the log may belong to any tests.
        (("stdout", *FILES), "", Product.INCOMPLETE, ExitCode.PRODUCT_FAILURE),
    ],
    ids=["passing", "failing", "everywhere"],
)
def test_what_it_writes_is_counted_and_the_verdict_is_true(
    bench: Bench, places: tuple[str, ...], failing: str, product: Product, code: ExitCode
) -> None:
    plan = bench.plan(stage("build", "true"), PYTEST, requirements=REQUIREMENTS)
    (plan.source / "tests" / "test_tiny.py").write_text(suite(*places) + failing)
    facts = bench.run(plan)
    result = judge_platform(plan, facts).result
    evidence = result.verdict.evidence
    assert (result.verdict.product, result.verdict.harness) == (product, Harness.CLEAN), evidence
    assert exit_code([result]) == code
    assert [each.exit_code for each in result.stages if each.name != "image"][-2:] == [
        0,
        int(bool(failing)),
    ]
    found = [it.parameters for it in evidence if it.code == on_harness.unreadable_lines.code]
    # A stage prints into the long line, and an event of the agent divides it.
    [printed] = [it for it in found if it["source"] == Source.OUTPUT]
    lines, longest = printed["lines"], printed["longest"]
    assert isinstance(lines, int)
    assert isinstance(longest, int)
    assert lines >= 4
    assert longest * (lines - 3) >= LONGEST
    assert (plan.results / "agent.log").read_text().startswith('{"event":"stage_started"}\n')
    if "events.jsonl" in places:
        assert on_harness.unreadable_lines(Source.EVENTS, 4, LONGEST) in evidence
        assert Source.LOG in [it["source"] for it in found]
    assert bench.observer.every(RunFinished)
    assert bench.engine.resume(plan, bench.observer) is None  # no leftovers


@pytest.mark.usefixtures("one_user")
def test_times_of_a_file_that_the_tests_wrote_are_not_believed(bench: Bench) -> None:
    plan = bench.plan(stage("build", "sleep", "0.2"), PYTEST, requirements=REQUIREMENTS)
    (plan.source / "tests" / "test_tiny.py").write_text(FORGED_TIMES)
    result = judge_platform(plan, bench.run(plan)).result
    assert (result.verdict.product, result.verdict.harness) == (Product.PASSED, Harness.CLEAN)
    [build] = [each.seconds for each in result.stages if each.name == "build"]
    assert build is not None
    assert build >= 0.2
    assert '"seconds": 0.001' in (plan.results / "events.jsonl").read_text()
    ends = f"exit code 0 after {build:.3f} s; the file has exit code 0 after 0.001 s"
    assert on_harness.record_changed(f"stage build ended with {ends}") in result.verdict.evidence


SPARSE = """
import os
megabytes = {"a": (256, 0), "b": (0, 40), "c": (0, 1), "d": (1 << 20, 0), "e": (0, 1)}
for name, (holes, content) in megabytes.items():
    with open("/opt/infini-ci/results/" + name, "wb") as file:
        file.write(os.urandom(content << 20))
        file.truncate(content + holes << 20)
"""


@pytest.mark.docker
@pytest.mark.usefixtures("one_user")
def test_bytes_of_a_container_are_bounded_and_holes_stay_holes(docker_bench: Bench) -> None:
    limits = ResultLimits(total_bytes=32 << 20)
    plan = replace(docker_bench.plan(python_stage("plant", SPARSE)), result_limits=limits)
    facts = docker_bench.run(plan)
    assert (facts.lost, facts.exit_code) == (False, 0)
    assert facts.notes[-2:] == (
        "not copied from the container's results: 1 file for which the limit of 33,554,432 bytes"
        " leaves no room: results/b",
        "not copied from the container's results: 1 part of the archive: results/d of"
        " 1,099,511,627,776 bytes, and everything after it",
    )
    assert (plan.results / "a").stat().st_size == 256 << 20
    assert (plan.results / "a").stat().st_blocks == 0
    assert (plan.results / "c").stat().st_size == 1 << 20
    assert not (plan.results / "e").exists()


LINKS = """
import os
os.chdir("/opt/infini-ci/results")
os.symlink("zz/" * 20 + "../" * 20 + "etc/hostname", "a_leak.txt")
os.symlink(".", "zz")
os.symlink("/etc/hostname", "plant.log.d")
os.mkdir("host.lock")
os.mkfifo("pipe")
os.rename("plant.log", "moved.log")
os.symlink("moved.log", "plant.log")
print("written before and after", flush=True)
"""


@pytest.mark.docker
@pytest.mark.usefixtures("one_user")
def test_no_link_comes_out_of_a_container(docker_bench: Bench) -> None:
    plan = docker_bench.plan(python_stage("plant", LINKS))
    facts = docker_bench.run(plan)
    assert (facts.lost, facts.exit_code) == (False, 0)
    assert set(facts.notes[-3:]) == {
        "not copied from the container's results: 4 links: results/a_leak.txt, results/plant.log,"
        " results/plant.log.d, results/zz",
        "not copied from the container's results: 1 reserved name: results/host.lock",
        "not copied from the container's results: 1 special file: results/pipe",
    }
    assert not any(path.is_symlink() for path in plan.results.rglob("*"))
    assert (plan.results / "plant.log").read_text() == "written before and after\n"  # as streamed


LOOK = """
import json, os, signal
from pathlib import Path

def refused(action, *arguments):
    try:
        action(*arguments)
    except PermissionError:
        return True
    return False

def reach(pid):
    # A process: its memory, its output, a signal.
    return [
        refused(os.open, f"/proc/{pid}/mem", os.O_RDWR),
        refused(os.open, f"/proc/{pid}/fd/1", os.O_WRONLY),
        refused(os.kill, pid, signal.SIGCONT),
    ]

def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":", 1) for line in lines)

me = os.getpid()
results = Path("/opt/infini-ci/results")
facts = status_of(me)
others = [int(path.name) for path in Path("/proc").glob("[0-9]*") if int(path.name) != me]
agent = next(p for p in others if b"agent.pyz" in Path(f"/proc/{p}/cmdline").read_bytes())
print(json.dumps({
    "user": facts["Uid"].split(),
    "capabilities": [facts[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")],
    "no_new_privileges": facts["NoNewPrivs"].strip(),
    "agent": status_of(agent)["CapEff"].strip(),
    "refused": [reach(pid) for pid in others],
    "files": [refused(os.open, path, os.O_WRONLY) for path in results.iterdir()],
    "folder": refused(os.mkdir, results / "x"),
    "unlink": refused(os.unlink, results / "events.jsonl"),
    "root": refused(os.setuid, 0),
}))
"""
# Takes the earlier lines of the per-test log back, if it can.
REWRITE = """
import os, pytest

def test_fails():
    assert False

def test_rewrites(request):
    path = request.config.getoption("report_log")
    for action in (os.unlink, lambda path: os.rename(path, path + "x")):
        with pytest.raises(PermissionError):
            action(path)
    with pytest.raises(OSError):
        os.truncate(path, 0)
    with pytest.raises(PermissionError):
        open(path)
    open(path, "w").close()
"""


@pytest.mark.docker
def test_the_agents_files_and_processes_are_its_own(docker_bench: Bench) -> None:
    tests = replace(PYTEST, command=("python", "-m", "pytest", "tests"))
    plan = docker_bench.plan(python_stage("look", LOOK), tests)
    (plan.source / "tests" / "test_tiny.py").write_text(REWRITE)
    facts = docker_bench.run(plan)
    found = json.loads((plan.results / "look.log").read_text())
    assert found["user"] == 4 * ["1000"]
    assert found["capabilities"] == 4 * [f"{0:016x}"]
    assert found["no_new_privileges"] == "1"
    assert found["agent"] == f"{1 << 5 | 1 << 6 | 1 << 7:016x}"  # KILL, SETGID, SETUID
    assert len(found["refused"]) == 3  # the init process, the agent and its supervisor
    assert all(map(all, found["refused"]))
    assert found["files"]
    assert all([*found["files"], found["folder"], found["unlink"], found["root"]])
    result = judge_platform(plan, facts).result
    assert result.verdict.product is Product.FAILED
    assert result.pytest is not None
    assert (result.pytest.passed, result.pytest.failed) == (1, 1)
    assert {"junit.xml", "pytest.jsonl"} <= result.artifacts.keys()
