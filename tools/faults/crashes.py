"""Processes of the code under test that end, hang or multiply in unexpected places."""

from __future__ import annotations

from signal import SIGABRT, SIGBUS, SIGSEGV, SIGTERM, Signals
from typing import Any

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.facts.sentences.on_tests import Reporter
from ci.facts.sentences.sentence import Exit
from ci.model.verdicts import Evidence, Harness, Product
from tools.faults.findings import (
    BOTH_PASSED,
    CUT,
    CUT_IN_COLLECTION,
    DIED_IN_WORKER,
    GAP,
    INTERNAL_ERROR,
    LAST_LINES,
    SECOND_FAILED,
    SECOND_RUNNING,
    SECOND_TEST,
    after_summary,
    failed,
    killed,
    no_log,
)
from tools.faults.model import Fault

HEAD = (
    "import atexit, ctypes, mmap, os, pytest, signal, subprocess, sys, tempfile, threading, time\n"
)
FIRST = f"{HEAD}def test_a(): pass\n"
BOTH = f"{FIRST}def test_b(): pass\n"


def left(code: int) -> Evidence:
    return on_harness.left_session(Exit(code), is_wrapped=False)


def at_limit(stage: str) -> Evidence:
    """Return the finding of a stage that reached its limit; it may take longer to end it."""
    found = on_stages.time_limit(stage, 4.0, 4.0)
    return found.model_copy(update={"text": f"{found.text}{GAP}"})


EXITED_EARLY = on_tests.bad_exit(Reporter.PYTEST, 1, None, on_tests.before_end(Reporter.PYTEST))
LOOPS = "python -c 'while True: pass'"


def crash(
    name: str, *evidence: Evidence, test: str = BOTH, conftest: str = "", **given: Any
) -> Fault:
    """Return a fault that pytest does not survive."""
    usual = {
        "files": {"test_it.py": test, "conftest.py": HEAD + conftest},
        "product": Product.INCOMPLETE,
        "harness": Harness.CRASHED,
        "evidence": evidence,
        "exits": (1,),
    }
    return Fault(name=name, **{**usual, **given})


EXIT = "`os._exit`"
GREEN: dict[str, Any] = {"product": Product.PASSED, "exits": (0,), "results": "2 passed"}
OS_EXIT = (
    crash(
        "`os._exit(0)` when the tests are imported",
        CUT_IN_COLLECTION,
        left(0),
        test=f"{BOTH}os._exit(0)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(3)` when the tests are imported",
        INTERNAL_ERROR,
        LAST_LINES,
        left(3),
        test=f"{BOTH}os._exit(3)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in `conftest.py`",
        no_log(0),
        on_harness.pytest_unseen(Exit(0)),
        conftest="os._exit(0)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a fixture",
        CUT,
        left(0),
        test=f"{FIRST}@pytest.fixture\ndef f(): os._exit(0)\ndef test_b(f): pass\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` when a fixture is torn down",
        CUT,
        left(0),
        SECOND_RUNNING,
        test=f"{FIRST}@pytest.fixture\ndef f():\n    yield\n    os._exit(0)\ndef test_b(f): pass\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a test",
        CUT,
        left(0),
        SECOND_RUNNING,
        test=f"{FIRST}def test_b(): os._exit(0)\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(1)` in a test",
        EXITED_EARLY,
        LAST_LINES,
        left(1),
        SECOND_RUNNING,
        test=f"{FIRST}def test_b(): os._exit(1)\n",
        product=Product.FAILED,
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a test in a worker of pytest-xdist",
        SECOND_FAILED,
        DIED_IN_WORKER,
        test=f"{FIRST}def test_b(): os._exit(0)\n",
        tests="python -m pytest -n 2 {folder}",
        product=Product.FAILED,
        results="1 passed, 1 failed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in `pytest_sessionfinish`, before the log ends",
        on_tests.suite_passed(2, 0, ended=False),
        left(0),
        conftest="@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish(): os._exit(0)\n",
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`os._exit(0)` in `pytest_sessionfinish`, after the log's end",
        BOTH_PASSED,
        on_harness.no_summary(Exit(0)),
        conftest="@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(): os._exit(0)\n",
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`os._exit(0)` at exit after a red suite",
        SECOND_FAILED,
        test=f"{FIRST}def test_b(): assert False\n",
        conftest="atexit.register(os._exit, 0)\n",
        product=Product.FAILED,
        harness=Harness.CLEAN,
        results="1 passed, 1 failed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` at exit after a green suite",
        BOTH_PASSED,
        conftest="atexit.register(os._exit, 0)\n",
        harness=Harness.CLEAN,
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`pytest.exit` with status 0 in a test",
        on_tests.ended_within(0, [SECOND_TEST]),
        on_tests.exit_called(0, "enough"),
        test=f"{FIRST}def test_b(): pytest.exit('enough', 0)\n",
        harness=Harness.CLEAN,
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`sys.exit(0)` when the tests are imported",
        INTERNAL_ERROR,
        LAST_LINES,
        test=f"{BOTH}sys.exit(0)\n",
        harness=Harness.CLEAN,
        kind=EXIT,
    ),
    crash(
        "a test that replaces pytest by another program (`exec`)",
        CUT,
        left(0),
        SECOND_RUNNING,
        test=f"{FIRST}def test_b(): os.execvp('true', ['true'])\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "a test command that does not exist",
        on_tests.bad_exit(Reporter.COMMAND, 127, None, f"; {no_log(127).text}"),
        on_tests.last_lines("pytest", ["no-such-program: No such file or directory"]),
        on_harness.pytest_unseen(Exit(127)),
        tests="no-such-program",
        product=Product.FAILED,
        kind=EXIT,
    ),
    crash(
        "a test that closes all files",
        EXITED_EARLY,
        LAST_LINES,
        left(1),
        SECOND_RUNNING,
        test=f"{FIRST}def test_b(): os.closerange(0, 100)\n",
        product=Product.FAILED,
        results="1 passed",
        kind=EXIT,
    ),
)

KIND = "Crashes and hangs"


def fatal(name: str, number: Signals, test: str) -> Fault:
    """Return the fault of a test whose process a signal ends that it causes itself."""
    return crash(
        name,
        CUT,
        killed("pytest", number),
        SECOND_RUNNING,
        test=FIRST + test,
        product=Product.FAILED,
        results="1 passed",
        kind=KIND,
    )


def endless(name: str, test: str, **given: Any) -> Fault:
    """Return the fault of a test that reaches the time limit."""
    return crash(
        name,
        CUT,
        at_limit("pytest"),
        SECOND_RUNNING,
        test=FIRST + test,
        harness=Harness.TIMED_OUT,
        limits_s={"pytest": 4},
        results="1 passed",
        kind=KIND,
        **given,
    )


TRUNCATED = """\
def test_b():
    file = tempfile.TemporaryFile()
    file.truncate(8192)
    memory = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    memory[5000]
"""
BOMB = """\
def test_b():
    subprocess.run([sys.executable, "-c", '''
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(600)
'''])
"""
FEW: dict[str, Any] = {"settings": {"processes": 64}}
CRASHES = (
    fatal(
        "a segmentation fault in a test",
        SIGSEGV,
        "def test_b(): ctypes.string_at(0)\n",
    ),
    crash(
        "a segmentation fault when the tests are imported",
        CUT_IN_COLLECTION,
        killed("pytest", SIGSEGV),
        test=f"{BOTH}ctypes.string_at(0)\n",
        product=Product.FAILED,
        kind=KIND,
    ),
    crash(
        "a segmentation fault at exit after a green suite",
        BOTH_PASSED,
        after_summary(139),
        conftest="atexit.register(ctypes.string_at, 0)\n",
        harness=Harness.EXIT_AFTER_SUMMARY,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a segmentation fault while it installs",
        failed("install", 139, SIGSEGV),
        killed("install", SIGSEGV),
        install="python -c 'import ctypes; ctypes.string_at(0)'",
        product=Product.FAILED,
        kept=("install.log",),
        kind=KIND,
    ),
    fatal("`os.abort` in a test", SIGABRT, "def test_b(): os.abort()\n"),
    fatal("a bus error in a test", SIGBUS, TRUNCATED),
    endless("a fork bomb in a test", BOMB, **FEW),
    crash(
        "a test that starts 500 threads where 64 are allowed",
        SECOND_FAILED,
        test=f"{FIRST}def test_b():\n    for _ in range(500):\n"
        "        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n",
        product=Product.FAILED,
        harness=Harness.CLEAN,
        results="1 passed, 1 failed",
        kind=KIND,
        **FEW,
    ),
    endless("an endless loop in a test", "def test_b():\n    while True: pass\n"),
    endless(
        "an endless loop in a test that ignores SIGTERM",
        "def test_b():\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: pass\n",
    ),
    crash(
        "an endless loop while it installs",
        failed("install", 143, SIGTERM),
        at_limit("install"),
        install=LOOPS,
        harness=Harness.TIMED_OUT,
        limits_s={"install": 4},
        kept=("install.log",),
        kind=KIND,
    ),
    endless(
        "a test that stops its process", "def test_b(): os.kill(os.getpid(), signal.SIGSTOP)\n"
    ),
    crash(
        "a test that leaves a process behind, in its own session and deaf to SIGTERM",
        BOTH_PASSED,
        test=f"{FIRST}def test_b():\n"
        "    subprocess.Popen(['setsid', '-f', 'sh', '-c', 'trap : TERM; sleep 600; sleep 600'])\n",
        harness=Harness.CLEAN,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a test that kills every process it can",
        BOTH_PASSED,
        test=f"{FIRST}def test_b(): os.kill(-1, signal.SIGKILL)\n",
        harness=Harness.CLEAN,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a test that kills the supervisor of its stage",
        SECOND_FAILED,
        test=f"{FIRST}def test_b(): os.kill(os.getppid(), signal.SIGKILL)\n",
        product=Product.FAILED,
        harness=Harness.CLEAN,
        results="1 passed, 1 failed",
        kind=KIND,
    ),
)
FAULTS = (*OS_EXIT, *CRASHES)
