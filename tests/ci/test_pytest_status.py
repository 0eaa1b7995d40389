"""pytest's own exit status, known also where the stage's command is a wrapper around it."""

from __future__ import annotations

import sys

import pytest
from agent_job import Job

from ci.agent.pytest_status import is_pytest

OURS = f"{sys.executable} -m pytest -p no:cacheprovider tests"
RED = """\
import pytest

@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    session.exitstatus = 1
"""
NESTED = """\
import subprocess, sys

def test_nested(tmp_path):
    (tmp_path / "test_red.py").write_text("def test_red(): assert False")
    log = tmp_path / "nested.jsonl"
    for more in ([], [f"--report-log={log}"]):
        command = [sys.executable, "-m", "pytest", tmp_path, *more]
        assert subprocess.run(command, check=False).returncode == 1
"""


@pytest.fixture
def suite(job: Job) -> Job:
    (job.workspace / "tests").mkdir()
    (job.workspace / "tests/test_a.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    return job


def wrapped(job: Job, script: str, environment: dict[str, str] | None = None) -> tuple[int, object]:
    """Run a shell script as the test command; return its exit code, and pytest's if known."""
    added = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "", **(environment or {})}
    job.stage("pytest", "sh", "-c", script, "sh", kind="pytest", environment=added)
    job.run()
    finished = job.finished("pytest")
    return finished["exit_code"], finished.get("pytest_status")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f'{OURS} "$@"; exit 7', (7, 0)),
        (f'{OURS} "$@"; exit 137', (137, 0)),
        (f'{OURS} "$@" -n 2; exit 7', (7, 0)),
        (f'{OURS} "$@" -k nothing; true', (0, 5)),
        (f'exec {OURS} "$@"', (0, None)),  # the stage's own process: its code is pytest's
        # Whoever cleans the environment runs as before, and pytest's own status is not known.
        (f'env -i {OURS} "$@"; exit 7', (7, None)),
        (f'env -u PYTHONPATH {OURS} "$@"; exit 7', (7, None)),
        (f'PYTHONPATH=tests {OURS} "$@"; exit 7', (7, None)),
        (f'{OURS.replace("-m", "-I -m", 1)} "$@"; exit 7', (7, None)),
        (f'{OURS.replace("-m", "-E -m", 1)} "$@"; exit 7', (7, None)),
        (f'PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {OURS} -p pytest_reportlog.plugin "$@"', (0, None)),
        # The last one counts, also where it does not get to its end.
        (f'{OURS} -k nothing "$@"; {OURS} "$@"; exit 7', (7, 0)),
        (f'{OURS} "$@"; LEAVE=1 {OURS} "$@"; exit 7', (7, None)),
        (f"{OURS}; exit 7", (7, None)),  # which does not write the run's log
    ],
)
def test_what_a_wrapper_hides(suite: Job, script: str, expected: tuple[int, object]) -> None:
    leave = "import os\nif os.environ.get('LEAVE'):\n    os._exit(0)\n"
    (suite.workspace / "tests/conftest.py").write_text(leave)
    assert wrapped(suite, script) == expected
    assert "2 passed" in suite.log("pytest") or "2 deselected" in suite.log("pytest")


def test_hooks_that_decide_after_the_log_are_known(suite: Job) -> None:
    (suite.workspace / "tests/conftest.py").write_text(RED)
    assert wrapped(suite, f'{OURS} "$@"; true') == (0, 1)
    assert '"exitstatus": 0' in (suite.results / "pytest.jsonl").read_text()


@pytest.mark.parametrize("raised", ["KeyError('a')", "pytest.exit.Exception('a', 7)"])
def test_a_hook_that_raises_is_no_end_that_is_known(suite: Job, raised: str) -> None:
    hook = RED.replace("session.exitstatus = 1", f"raise {raised}")
    (suite.workspace / "tests/conftest.py").write_text(hook)
    assert wrapped(suite, f'{OURS} "$@" || exit 9') in ((9, None), (9, 7))


def test_a_nested_pytest_is_another(suite: Job) -> None:
    (suite.workspace / "tests/test_nested.py").write_text(NESTED)
    assert wrapped(suite, f'{OURS} "$@"; exit 7') == (7, 0)


def test_coverage_and_the_stages_own_python_path(suite: Job) -> None:
    (suite.workspace / "tests/test_path.py").write_text("import mine\ndef test_c(): pass\n")
    (suite.workspace / "here").mkdir()
    (suite.workspace / "here/mine.py").touch()
    path = {"PYTHONPATH": str(suite.workspace / "here")}
    assert wrapped(suite, f'{OURS} "$@"; exit 7', path) == (7, 0)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["pytest", "tests"], True),
        (["/opt/venv/bin/py.test"], True),
        (["python", "-m", "pytest"], True),
        (["/usr/bin/python3.12", "-I", "-X", "dev", "-m", "pytest"], True),
        (["python", "run.py"], False),
        (["coverage", "run", "-m", "pytest"], False),
        (["sh", "-c", "python -m pytest"], False),
        (["python-wrapper", "-m", "pytest"], False),
    ],
)
def test_which_commands_are_pytest_itself(command: list[str], answer: bool) -> None:
    assert is_pytest(command) is answer
