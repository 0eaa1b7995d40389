"""pytest's own exit status, known also where the stage's command is a wrapper around it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ci.facts.pytest_log import parse_log
from ci.model.outcomes import Outcome
from ci.protocol.pytest_status import is_pytest
from ci.protocol.stage_kind import StageKind
from tests.cases import narrowed
from tests.ci.agent_job import Job

OURS = f"{sys.executable} -m pytest -p no:cacheprovider tests"
RED = """\
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 1
"""


@pytest.fixture
def suite(job: Job) -> Job:
    for folder in ("tests", "other"):
        (job.workspace / folder).mkdir()
    (job.workspace / "other/test_other.py").write_text("def test_other(): pass\n")
    add(job, test_a="def test_a(): pass\ndef test_b(): pass\n")
    return job


def add(job: Job, **files: str) -> None:
    """Write modules of the suite."""
    for name, text in files.items():
        (job.workspace / f"tests/{name}.py").write_text(text)


def wrapped(job: Job, script: str, **environment: str) -> tuple[int, object]:
    """Run a shell script as the test command; return its exit code, and pytest's if known."""
    return in_stage(job, "sh", "-c", script, "sh", **environment)


def in_stage(job: Job, *command: str, **environment: str) -> tuple[int, object]:
    # Hypothesis takes a third of the start of each process, and no suite here uses it.
    usual = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", "PYTEST_ADDOPTS": "-p no:hypothesispytest"}
    job.stage("pytest", *command, kind=StageKind.PYTEST, environment={**usual, **environment})
    job.run()
    finished = job.finished("pytest")
    return finished["exit_code"], finished.get("pytest_status")


@pytest.mark.parametrize(
    ("script", "expected"),
    narrowed(
        [
            (f'{OURS} "$@"; exit 7', (7, 0)),
            (f'{OURS} "$@"; exit 137', (137, 0)),
            (f'{OURS} "$@" -n 2; exit 7', (7, 0)),
            (f'{OURS} "$@" -k nothing; true', (0, 5)),
            (f'exec {OURS} "$@"', (0, None)),  # the stage's own process: its code is pytest's
            # What cleans the environment runs as before; pytest's own status is not known.
            (f'env -i {OURS} "$@"; exit 7', (7, None)),
            (f'env -u PYTHONPATH {OURS} "$@"; exit 7', (7, None)),
            (f'PYTHONPATH=tests {OURS} "$@"; exit 7', (7, None)),
            (f'{OURS.replace("-m", "-I -m", 1)} "$@"; exit 7', (7, None)),
            (f'{OURS.replace("-m", "-E -m", 1)} "$@"; exit 7', (7, None)),
            (f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {OURS} -p pytest_reportlog.plugin "$@"', (0, None)),
            # Of several, no success hides a failure, or a pytest that did not finish.
            (f'{OURS} -k nothing "$@"; {OURS} "$@"; exit 7', (7, 5)),
            (f'{OURS} "$@"; {OURS} "$@"; exit 7', (7, 0)),
            (f'{OURS} "$@"; LEAVE=1 {OURS} "$@"; true', (0, 2)),
            (f'LEAVE=1 {OURS} "$@"; {OURS} "$@"; true', (0, 2)),
            (f'{OURS} "$@"; LEAVE=1 {OURS} "$@" -n 2; true', (0, 2)),
            (f'LEAVE=1 {OURS} "$@"; {OURS}; true', (0, 2)),
            (f'{OURS} "$@" -k nothing & {OURS} "$@"; wait; true', (0, 5)),
            (f"{OURS}; exit 7", (7, None)),  # which does not write the run's log
        ],
        kept=8,
    ),
)
def test_what_a_wrapper_hides(suite: Job, script: str, expected: tuple[int, object]) -> None:
    leave = "import os\nif os.environ.get('LEAVE'):\n    os._exit(0)\n"
    add(suite, conftest=leave)
    assert wrapped(suite, script) == expected
    assert "2 passed" in suite.log("pytest") or "2 deselected" in suite.log("pytest")


RUNS_TWICE = """\
import subprocess, sys
import pytest

for folder in ("tests", "other"):
    arguments = [folder, *sys.argv[1:]]
    if {in_process}:
        pytest.main(arguments)
    else:
        subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False)
"""


@pytest.mark.parametrize(
    ("script", "runs"),
    narrowed(
        [
            (f'{OURS} "$@"; {OURS} "$@"', 2),
            (f'{OURS} && {OURS} "$@"', 2),
            (f'{OURS} "$@" || {OURS} --lf "$@"', 1),
            (f'{OURS} --nosuch || {OURS} "$@"', 2),
            (f'{OURS} "$@"; {OURS} -p no:pytest_reportlog; true', 2),
            (f'{OURS} "$@"; exec {OURS} "$@"', 2),
            (f'for _ in 1 2 3; do {OURS} "$@"; done', 3),
            (f'{OURS} "$@" & {OURS} "$@"; wait; true', 2),
            (f'{sys.executable} in_process.py "$@"; true', 2),
            (f'exec {sys.executable} in_process.py "$@"', 2),
            (f'{sys.executable} processes.py "$@"; true', 2),
            # What is one run.
            (f'exec {OURS} "$@"', 1),
            (f'{OURS} "$@" -n 2; true', 1),
            (f'{OURS} --version && {OURS} "$@"', 1),
            (f'{OURS} --collect-only -q && {OURS} "$@"', 1),
            (f'{OURS} --markers --help && {OURS} --fixtures && {OURS} "$@"', 1),
        ],
        kept=10,
    ),
)
def test_each_run_of_pytest_is_counted(suite: Job, script: str, runs: int) -> None:
    for name, in_process in (("in_process.py", True), ("processes.py", False)):
        (suite.workspace / name).write_text(RUNS_TWICE.format(in_process=in_process))
    wrapped(suite, script)
    assert suite.finished("pytest")["pytest_runs"] == runs


def test_the_log_has_the_results_of_both_runs(suite: Job) -> None:
    add(suite, test_red="def test_red(): assert False\n")
    assert wrapped(suite, f'{OURS} "$@"; {OURS} "$@" -k test_a') == (0, 1)
    log = parse_log((suite.results / "pytest.jsonl").read_text().splitlines())
    assert log.node_ids(Outcome.FAILED) == ("tests/test_red.py::test_red",)
    assert (log.sessions, log.exit_status) == (2, 1)


def test_a_process_that_replaces_itself_is_one_run(suite: Job) -> None:
    add(
        suite,
        conftest="import os, sys\n"
        "if not os.environ.get('AGAIN'):\n"
        "    os.environ['AGAIN'] = '1'\n"
        "    os.execv(sys.executable, [sys.executable, '-m', 'pytest', *sys.argv[1:]])\n",
    )
    assert wrapped(suite, f'{OURS} "$@"; exit 7') == (7, 0)
    assert suite.finished("pytest")["pytest_runs"] == 1


IN_TEST = """\
import os, subprocess, sys
import pytest

def test_in_process(tmp_path):
    (tmp_path / "test_red.py").write_text("def test_red(): assert False")
    for _ in range(2):
        assert pytest.main([str(tmp_path), "-p", "no:cacheprovider"]) == 1

@pytest.mark.parametrize("arguments", [[], ["--report-log=nested.jsonl"]])
@pytest.mark.parametrize("names", [list(os.environ), ["PYTHONPATH"]])
def test_in_a_process(tmp_path, names, arguments):
    (tmp_path / "test_red.py").write_text("def test_red(): assert False")
    environment = {name: os.environ[name] for name in names}
    command = [sys.executable, "-m", "pytest", tmp_path, *arguments]
    assert subprocess.run(command, env=environment, check=False).returncode == 1
"""


@pytest.mark.parametrize("options", ["", "-n 2"])
def test_a_pytest_that_tests_start_is_no_run_of_the_stage(suite: Job, options: str) -> None:
    add(suite, test_nested=IN_TEST)
    assert wrapped(suite, f'{OURS} "$@" {options}; exit 7') == (7, 0), suite.log("pytest")
    assert suite.finished("pytest")["pytest_runs"] == 1


def test_hooks_that_decide_after_the_log_are_known(suite: Job) -> None:
    add(suite, conftest=RED)
    assert wrapped(suite, f'{OURS} "$@"; true') == (0, 1)
    assert '"exitstatus": 0' in (suite.results / "pytest.jsonl").read_text()


@pytest.mark.parametrize("raised", ["KeyError('a')", "pytest.exit.Exception('a', 7)"])
def test_a_hook_that_raises_is_no_end_that_is_known(suite: Job, raised: str) -> None:
    hook = RED.replace("session.exitstatus = 1", f"raise {raised}")
    add(suite, conftest=hook)
    assert wrapped(suite, f'{OURS} "$@" || exit 9') in ((9, None), (9, 7))


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["pytest", "tests"], True),
        (["/opt/venv/bin/py.test"], True),
        (["python", "-m", "pytest"], True),
        (["/usr/bin/python3.12", "-I", "-X", "dev", "-m", "pytest"], True),
        (["python", "run.py"], False),
        (["python", "run.py", "-m", "pytest"], False),
        (["python", "-c", "x", "-m", "pytest"], False),
        (["python", "-m", "coverage", "run", "-m", "pytest"], False),
        (["coverage", "run", "-m", "pytest"], False),
        (["sh", "-c", "python -m pytest"], False),
        (["python-wrapper", "-m", "pytest"], False),
        (["python"], False),
    ],
)
def test_which_commands_are_pytest_itself(command: list[str], answer: bool) -> None:
    assert is_pytest(command) is answer


def test_coverage_and_the_stages_own_python_path(suite: Job) -> None:
    add(suite, test_path="import mine\ndef test_c(): pass\n")
    (suite.workspace / "here").mkdir()
    (suite.workspace / "here/mine.py").touch()
    path = str(suite.workspace / "here")
    assert wrapped(suite, f'{OURS} "$@"; exit 7', PYTHONPATH=path) == (7, 0)


def test_a_pytest_that_writes_another_log_hides_nothing(suite: Job) -> None:
    add(suite, conftest=RED)
    other = OURS.replace("tests", "other")
    assert wrapped(suite, f'{OURS} "$@"; {other}; true') == (0, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["wrapper.py", "-m", "pytest"],
        ["-c", "import runpy; runpy.run_path('wrapper.py')", "-m", "pytest"],
        ["-m", "wrapper", "-m", "pytest"],
    ],
)
def test_a_command_that_only_looks_like_pytest(suite: Job, arguments: list[str]) -> None:
    add(suite, conftest=RED)
    (suite.workspace / "wrapper.py").write_text(
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'pytest', *sys.argv[sys.argv.index('tests'):]]\n"
        "subprocess.run(command, check=False)\n"
    )
    assert in_stage(suite, sys.executable, *arguments, "tests") == (0, 1)


@pytest.mark.parametrize(
    "status",
    narrowed(["'256'", "'1' * 100_000_000", "'-1'", "'1.5'", "'\u0663'", "'1' * 31"], kept=2),
)
def test_a_status_that_no_process_has_is_not_read(suite: Job, status: str) -> None:
    hook = "import infini_ci_status\ndef pytest_unconfigure():\n    {}\n".format(
        "with (infini_ci_status.STATUSES / '1-1-0.log').open('w') as file: file.write(TEXT)"
    )
    add(suite, conftest=f"TEXT = {status}\n{hook}")
    assert wrapped(suite, f'{OURS} "$@"; exit 7') == (7, 2)


@pytest.mark.parametrize(
    "attack",
    narrowed(
        [
            "shutil.move(folder, other); folder.symlink_to(other)",
            "shutil.move(folder, other); folder.touch()",
            "shutil.rmtree(folder)",
            "shutil.rmtree(folder / 'statuses'); (folder / 'statuses').touch()",
            "os.mkfifo(folder / 'statuses/fifo')",
            "(folder / 'statuses/link').symlink_to('/dev/zero')",
        ],
        kept=3,
    ),
)
def test_a_suite_cannot_break_the_agent(
    suite: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    add(
        suite,
        conftest="import os, pathlib, shutil, infini_ci_status\n"
        f"folder, other = infini_ci_status.FOLDER, pathlib.Path({str(tmp_path / 'other')!r})\n"
        f"def pytest_unconfigure():\n    {attack}\n",
    )
    code, status = wrapped(suite, f'{OURS} "$@"; exit 7')
    assert (code, status) in ((7, 0), (7, 2), (7, None))
    assert suite.events("run_finished")
    assert not list(temporary.glob("infini-ci-status-*"))
