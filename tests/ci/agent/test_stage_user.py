"""Stages that run as another user than the agent, as in a container."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci.agent.user import LARGEST_PIPE, LogPipe
from ci.protocol.agent_files import benchmark_file
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job
from tools.compat.interpreters import find_interpreters

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start other users")
OTHER_USER = 65534
OLDEST, NEWEST = "3.8", "3.13"


@pytest.fixture(params=[OLDEST, NEWEST])
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    """A job in a folder that every user can enter, with an agent of each Python."""
    found = list(find_interpreters(request.param))
    if not found:
        pytest.skip(f"no Python {request.param}")
    folder = Path(tempfile.mkdtemp(prefix="infini-ci-test-"))
    folder.chmod(0o755)
    job = Job(folder)
    job.interpreter = str(found[0].executable)
    job.user = OTHER_USER
    job.workspace.chmod(0o777)
    yield job
    shutil.rmtree(folder)


def test_a_stage_is_another_user_without_capabilities(job: Job) -> None:
    look = "id -u; id -G; pwd; echo $HOME; grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status"
    job.stage("look", "sh", "-c", f"{look}; echo again >/dev/stdout; exec >/dev/stderr; echo too")
    assert job.run() == 0
    user, groups, folder, home, *facts, again, too = job.log("look").splitlines()
    assert (user, groups) == (str(OTHER_USER), str(OTHER_USER))
    assert folder == str(job.workspace)
    assert home == "/nonexistent"
    assert facts == ["CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"]
    assert (again, too) == ("again", "too")


def test_a_stage_cannot_change_the_results(job: Job) -> None:
    for path in ("events.jsonl", "environment.json", "x.log", "new"):
        job.stage(path[0] + "1", "sh", "-c", f"echo forged >{job.results / path}")
    assert job.run() == 1
    assert "denied" in job.log("e1")
    assert not (job.results / "new").exists()
    assert [event["event"] for event in job.events()][-1] == "run_finished"


WRITES = """
log=${0#--report-log=} junit=${1#--junitxml=}
echo first >$log; rm -f $log; mv $log x; echo second >$log
head -c 3000000 /dev/zero | tr "\\0" "y" >>$log
echo "<xml/>" >$junit
"""


def test_the_log_of_pytest_comes_through_a_pipe(job: Job) -> None:
    job.stage("pytest", "sh", "-c", WRITES, kind=StageKind.PYTEST)
    job.stage("later", "true")
    assert job.run() == 0, job.log("pytest")
    kept = (job.results / "pytest.jsonl").read_text()
    assert kept.startswith("first\nsecond\ny")
    assert len(kept) == len("first\nsecond\n") + 3_000_000
    assert (job.results / "junit.xml").read_text() == "<xml/>\n"


def test_benchmarks_of_the_sources_are_not_those_of_the_stage(job: Job) -> None:
    """One file is removed before the stage; the other, which its user may not remove, is left."""
    for name, mode in (("open", 0o777), ("closed", 0o755)):
        folder = job.workspace / name
        folder.mkdir()
        folder.chmod(mode)
        (folder / "out.json").write_text("old")
        script = f"[ {name} = closed ] || echo new >>{name}/out.json"
        path = f"{name}/out.json"
        job.stage(name, "sh", "-c", script, kind=StageKind.BENCHMARK, benchmarks=path)
    assert job.run() == 0
    assert (job.results / benchmark_file("open")).read_text() == "new\n"
    assert not (job.results / benchmark_file("closed")).exists()
    [missing] = job.events("artifact_missing")
    assert missing["path"] == "closed/out.json"


LOOK = """
echo "${PROXY-unset}"
[ -z "$NETRC" ] || { cat "$NETRC"; echo; stat -c '%u %a' "$NETRC"; }
echo "${NETRC-unset}"
"""


@pytest.mark.parametrize("user", [OTHER_USER, None])
def test_passwords_reach_only_the_stages_that_get_them(job: Job, user: int | None) -> None:
    job.user = user
    file = job.workspace.parent / "private"
    file.write_text("PROXY=http://me:a=b@c\nNETRC=machine c login me password pw\n")
    file.chmod(0o600)
    job.credentials = str(file)
    own = {"PROXY": "http://own", "NETRC": ""}
    job.stage("with", "sh", "-c", LOOK, credentials=True)
    job.stage("own", "sh", "-c", LOOK, credentials=True, environment=own)
    job.stage("without", "sh", "-c", LOOK)
    assert job.run() == 0
    assert not file.exists()
    *found, name = job.log("with").splitlines()
    owner = os.geteuid() if user is None else user
    assert found == ["http://me:a=b@c", "machine c login me password pw", f"{owner} 600"]
    assert not Path(name).exists()
    assert job.log("own") == "http://own\n\n"
    assert job.log("without") == "unset\nunset\n"


def test_only_regular_files_are_taken_over(job: Job) -> None:
    link = f"ln -s {job.workspace.parent}/secret ${{1#--junitxml=}}"
    (job.workspace.parent / "secret").write_text("of root")
    (job.workspace.parent / "secret").chmod(0o600)
    job.stage("pytest", "sh", "-c", link, kind=StageKind.PYTEST)
    private = "mkdir out; echo mine >out/own; chmod 600 out/own; chmod 700 out"
    job.stage("artifact", "sh", "-c", private)
    job.stage("link", "ln", "-s", str(job.workspace.parent / "secret"), "link")
    job.artifacts = {"own": "out/own", "link": "link", "out": "out"}
    assert job.run() == 0
    assert not (job.results / "junit.xml").exists()
    assert (job.results / "own").read_text() == "mine\n"
    assert [event["name"] for event in job.events("artifact_cut")] == ["link"]
    assert (job.results / "out.tar.gz").exists()


def test_a_user_that_a_stage_cannot_become(job: Job) -> None:
    job.user = 1 << 40
    job.stage("build", "true")
    assert job.run() == 1
    assert not (job.results / "events.jsonl").exists()


def test_pip_can_report_as_another_user_of_the_stage(job: Job) -> None:
    """pip fails if it cannot write its report, as where a stage of root builds as another user."""
    job.user = None
    job.results.mkdir(mode=0o700)
    program = f"import os; os.setuid({OTHER_USER}); open(os.environ['PIP_REPORT'], 'w').write('{{')"
    job.python("build", program)
    job.stage("killed", "sh", "-c", 'echo "$PIP_REPORT" >place; kill -9 $$')
    assert job.run() == 1
    assert job.finished("build")["exit_code"] == 0
    assert not list(job.results.glob("pip-report*"))
    assert not Path((job.workspace / "place").read_text().strip()).parent.exists()


def test_a_pipe_ends_no_writer(tmp_path: Path) -> None:
    pipe = LogPipe(tmp_path / "pipe", tmp_path / "log")
    for text in ("one\n", "two\n"):
        with pipe.path.open("w") as file:
            file.write(text)
        pipe.copy()
    pipe.copy()  # it is empty
    with pipe.path.open("w") as file:
        file.write("x" * (LARGEST_PIPE // 32))
    pipe.close()
    assert (tmp_path / "log").read_text() == "one\ntwo\n" + "x" * (LARGEST_PIPE // 32)
    assert not pipe.path.exists()
