"""``manifest --system slurm``: the script that it prints, on a real cluster of one node."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.facts.sentences.on_stages import no_result
from ci.model.results import HOST_LOCK, PlatformResult
from ci.model.verdicts import Harness, Product
from ci.store.folder import read_results
from ci.util.files import is_locked
from tests.e2e.plans import LAUNCHER
from tests.e2e.slurm_cluster import SlurmCluster, slurm_cluster, wait_until

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """\
project: tiny
platforms:
  cpu: {}
  nvidia: {}
  moore: {devices: {count: 0}}
  ascend: {devices: {count: 0}}
stages:
- {name: pytest, kind: pytest, command: python -m pytest -q tests}
"""
SITE = """\
platforms:
  cpu: {engine: host}
  nvidia: {engine: host}
  moore: {engine: host}
  ascend:
    engine: host
    slurm: {options: ["--gres=gpu:1"]}
"""
SUITE = """\
import os

# Slurm sets it for a job that it gave a GPU. The others have none.
GIVEN = {"ascend": "0"}


def test_devices():
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == GIVEN.get(os.environ["INFINI_CI_PLATFORM"])


def test_sources():
    assert not os.path.exists("uncommitted")
"""
# It lasts as long as its file exists, which is in the folder of the project.
WAITING = """\
import pathlib
import time


def test_that_waits():
    here = pathlib.Path({folder!r})
    (here / "waiting").touch()
    while (here / "waiting").exists():
        time.sleep(0.1)
"""


# The `python` of the jobs, whose environments are copies of one.
PYTHON = """\
#!/bin/sh
case $2 in ci.*) exec {own} "$@" ;; esac
shift 2 # -m ci
exec {launcher} {python} "$@"
"""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster without jobs; it starts within 2 s."""
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@dataclass
class Release:
    """A project, and its submissions to a cluster."""

    folder: Path
    cluster: SlurmCluster
    python: str

    def write(self, name: str, text: str) -> None:
        path = self.folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
        for words in (
            ["init", "--quiet"],
            ["add", ".", ":!ci.site.yaml"],
            [*identity, "commit", "-qm", "All"],
        ):
            subprocess.run(["git", *words], cwd=self.folder / "project", check=True)

    def manifest(self, *words: str) -> Path:
        """Write the script of a submission."""
        program = self.folder / "python"
        program.write_text(
            PYTHON.format(
                own=shlex.quote(sys.executable),
                launcher=shlex.join([sys.executable, "-c", LAUNCHER]),
                python=self.python,
            )
        )
        program.chmod(0o755)
        command = [sys.executable, "-c", LAUNCHER, str(program), "manifest", *words]
        command += ["--system", "slurm"]
        command += ["--source", str(self.folder / "project"), "--results", str(self.results)]
        printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        script = self.folder / "release.sh"
        script.write_text(printed.stdout)
        return script

    def start(self, script: Path, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", str(script), *options],
            env=self.cluster.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_test(self) -> None:
        wait_until((self.folder / "waiting").exists, "the test")

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def work(self) -> Path:
        """The folder of the only submission."""
        [found] = (self.results / "slurm").iterdir()
        return found

    def row(self, platform: str) -> PlatformResult:
        [path] = self.results.glob(f"2*/{platform}/../results.json")
        [row] = read_results(path).platforms
        return row


@pytest.fixture
def release(tmp_path: Path, cluster: SlurmCluster, python: str) -> Release:
    found = Release(tmp_path, cluster, python)
    for name, text in {"ci.yaml": CONFIG, "tests/test_a.py": SUITE}.items():
        found.write(name, text)
    return found


@pytest.fixture
def waiting(release: Release) -> Iterator[Release]:
    """Its suite lasts until the end of the test."""
    release.write("tests/test_a.py", WAITING.format(folder=str(release.folder)))
    release.write("ci.site.yaml", SITE)
    release.commit()
    yield release
    (release.folder / "waiting").unlink(missing_ok=True)


def end(script: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = script.communicate(timeout=300)
    return script.returncode, output, errors


def lines_of(table: str, platforms: Sequence[str]) -> list[str]:
    """The lines of these platforms in the table of results, between breakdown and reasons."""
    results = table.partition("\nPlatform ")[2].partition(" why it did not pass")[0]
    names = tuple(f"{name} " for name in platforms)
    return [line for line in results.splitlines() if line.startswith(names)]


def test_one_table_of_all_platforms(release: Release) -> None:
    release.write("ci.site.yaml", SITE)
    release.commit()
    script = release.manifest("cpu", "moore", "ascend")
    text = script.read_text()
    release.write("uncommitted", "after the submission, jobs see none of this")
    code, table, errors = end(release.start(script))
    assert code == ExitCode.PASSED, errors
    rows = lines_of(table, ["CPU", "Moore", "Ascend"])
    assert len(rows) == 3
    assert all("2 passed" in row for row in rows)
    assert text.count("\nsubmit ") == 2
    assert "'cpu moore' 0-1" in text
    # The history of the site has them too, and the checkout is gone.
    assert len([*release.results.glob("*/results.json")]) == 4  # and `latest`
    assert not [*release.work.glob(".*")]


def test_a_failed_platform_fails_the_release(release: Release) -> None:
    site = SITE.replace("--gres=gpu:1", "--gres=npu:1")  # so it gets no GPU
    release.write("ci.site.yaml", site)
    release.commit()
    code, table, _ = end(release.start(release.manifest("cpu", "ascend")))
    assert code == ExitCode.PRODUCT_FAILURE
    cpu, ascend = lines_of(table, ["CPU", "Ascend"])
    assert "2 passed" in cpu
    assert "1 failed, 1 passed" in ascend


@pytest.mark.complete
def test_a_job_gets_the_devices_of_its_platform(release: Release) -> None:
    release.write("ci.site.yaml", SITE)
    release.commit()
    script = release.manifest("nvidia")
    assert "--gres=gpu:1" in script.read_text()
    code, _, _ = end(release.start(script))
    # Slurm counts a GPU; the agent looks for one.
    assert code == ExitCode.INFRASTRUCTURE
    reasons = str(release.row("nvidia").verdict.evidence)
    assert "devices.count is 1; found: " in reasons or "device detection failed: " in reasons


@pytest.mark.complete
def test_a_job_that_cannot_be_submitted_is_missing(release: Release) -> None:
    release.write("ci.site.yaml", SITE.replace("--gres=gpu:1", "--gres=gpu:2"))
    release.commit()
    code, table, errors = end(release.start(release.manifest("cpu", "ascend")))
    assert code == ExitCode.INFRASTRUCTURE
    assert "Requested node configuration is not available" in errors
    cpu, ascend = lines_of(table, ["CPU", "Ascend"])
    assert "2 passed" in cpu
    found = no_result("commit", "").text.partition(":")[0]
    assert found in ascend.lower()


def test_without_any_job_there_is_no_table(release: Release) -> None:
    release.write("ci.site.yaml", SITE)
    release.commit()
    code, table, errors = end(release.start(release.manifest("cpu"), "--partition=missing"))
    assert (code, table) == (ExitCode.INFRASTRUCTURE, "")
    assert "invalid partition specified: missing" in errors
    assert "error: no job has left a result" in errors


def test_a_cancelled_job_is_incomplete(waiting: Release) -> None:
    script = waiting.start(waiting.manifest("cpu"))
    waiting.wait_for_test()
    waiting.cluster.output("scancel", f"--name={waiting.work.name}")
    code, table, errors = end(script)
    assert code == ExitCode.INFRASTRUCTURE, (table, errors)
    verdict = waiting.row("cpu").verdict
    assert (verdict.product, verdict.harness) == (Product.INCOMPLETE, Harness.INFRASTRUCTURE)


@pytest.mark.complete  # Slurm's shortest limit is a minute
def test_the_time_limit_of_slurm_is_no_product_failure(waiting: Release) -> None:
    # Slurm signals the job when less than a minute of its time remains: at once.
    script = waiting.start(waiting.manifest("cpu"), "--time=1")
    code, table, errors = end(script)
    assert code == ExitCode.INFRASTRUCTURE, (table, errors)
    assert waiting.row("cpu").verdict.product in (Product.INCOMPLETE, Product.NOT_RUN)


@pytest.mark.complete
def test_an_interrupted_script_cancels_its_jobs(waiting: Release) -> None:
    script = waiting.start(waiting.manifest("cpu"))
    waiting.wait_for_test()
    script.send_signal(signal.SIGINT)
    code, table, errors = end(script)
    assert code == ExitCode.INTERRUPTED, (table, errors)
    assert waiting.cluster.output("squeue", "--noheader") == ""
    [lock] = waiting.work.glob("cpu/2*/.lock")
    assert not is_locked(lock)
    assert not [*waiting.work.glob(".*")]


def test_a_lost_node_is_an_infrastructure_failure(waiting: Release) -> None:
    script = waiting.start(waiting.manifest("cpu"))
    waiting.wait_for_test()
    waiting.cluster.node.kill()
    [lock] = waiting.work.glob(f"cpu/2*/cpu/{HOST_LOCK}")
    batch = [*processes_of(str(waiting.work)), json.loads(lock.read_text())["agent"]]
    for process in batch:
        os.kill(process, signal.SIGKILL)
    (waiting.folder / "waiting").unlink()  # what the agent leaves behind ends too
    code, table, errors = end(script)
    assert code == ExitCode.INFRASTRUCTURE, (table, errors)
    verdict = waiting.row("cpu").verdict
    assert (verdict.product, verdict.harness) == (Product.NOT_RUN, Harness.INFRASTRUCTURE)


def processes_of(folder: str) -> list[int]:
    """The processes of a job whose command line names a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if folder.encode() in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found
