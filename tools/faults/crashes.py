"""Processes of the code under test that end, hang or multiply in unexpected places."""

from __future__ import annotations

from typing import Any

from ci.model.results import Harness, Product
from tools.faults.model import Fault

HEAD = (
    "import atexit, ctypes, mmap, os, pytest, signal, subprocess, sys, tempfile, threading, time\n"
)
FIRST = f"{HEAD}def test_a(): pass\n"
BOTH = f"{FIRST}def test_b(): pass\n"
PASSED = "pytest ended with status 0: 2 passed, 0 skipped"
CUT = "pytest did not finish; its log has 1 result"
CUT_EARLY = "pytest did not finish; its log has 0 results"
RUNNING = "pytest was running …/test_it.py::test_b"
LAST_LINES = "last lines of pytest.log: …"
EARLY = "pytest exited early with exit code {} and did not end its session"
NOTHING = "nothing shows that pytest ran: exit code {}, no log and no summary"
NO_SUMMARY = "pytest printed no closing summary, exit code 0: it crashed or called os._exit, …"
BY_SIGNAL = "stage {} was killed by signal {} after … s"
NO_LOG = "there is no per-test log; stage pytest ended with exit code {0}; its output is pytest.log"
LIMIT = "stage {} reached its time limit of 4 s…"
RED = "1 failed, 0 errors: …/test_it.py::test_b"
LOOPS = "python -c 'while True: pass'"


def crash(name: str, *evidence: str, test: str = BOTH, conftest: str = "", **given: Any) -> Fault:
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
        CUT_EARLY,
        EARLY.format(0),
        test=f"{BOTH}os._exit(0)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(3)` when the tests are imported",
        "pytest exited with 3: internal error",
        LAST_LINES,
        EARLY.format(3),
        test=f"{BOTH}os._exit(3)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in `conftest.py`",
        NO_LOG.format(0),
        NOTHING.format(0),
        conftest="os._exit(0)\n",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a fixture",
        CUT,
        EARLY.format(0),
        test=f"{FIRST}@pytest.fixture\ndef f(): os._exit(0)\ndef test_b(f): pass\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` when a fixture is torn down",
        CUT,
        EARLY.format(0),
        RUNNING,
        test=f"{FIRST}@pytest.fixture\ndef f():\n    yield\n    os._exit(0)\ndef test_b(f): pass\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a test",
        CUT,
        EARLY.format(0),
        RUNNING,
        test=f"{FIRST}def test_b(): os._exit(0)\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(1)` in a test",
        "pytest exited with 1 before the end of its session",
        LAST_LINES,
        EARLY.format(1),
        RUNNING,
        test=f"{FIRST}def test_b(): os._exit(1)\n",
        product=Product.FAILED,
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in a test in a worker of pytest-xdist",
        RED,
        "a pytest worker process died in …/test_it.py::test_b",
        test=f"{FIRST}def test_b(): os._exit(0)\n",
        tests="python -m pytest -n 2 {folder}",
        product=Product.FAILED,
        results="1 passed, 1 failed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` in `pytest_sessionfinish`, before the log ends",
        "pytest exited early: 2 passed, 0 skipped",
        EARLY.format(0),
        conftest="@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish(): os._exit(0)\n",
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`os._exit(0)` in `pytest_sessionfinish`, after the log's end",
        PASSED,
        NO_SUMMARY,
        conftest="@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(): os._exit(0)\n",
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`os._exit(0)` at exit after a red suite",
        RED,
        test=f"{FIRST}def test_b(): assert False\n",
        conftest="atexit.register(os._exit, 0)\n",
        product=Product.FAILED,
        harness=Harness.CLEAN,
        results="1 passed, 1 failed",
        kind=EXIT,
    ),
    crash(
        "`os._exit(0)` at exit after a green suite",
        PASSED,
        conftest="atexit.register(os._exit, 0)\n",
        harness=Harness.CLEAN,
        kind=EXIT,
        **GREEN,
    ),
    crash(
        "`pytest.exit` with status 0 in a test",
        "pytest ended with status 0 in the middle of …/test_it.py::test_b",
        test=f"{FIRST}def test_b(): pytest.exit('enough', 0)\n",
        harness=Harness.CLEAN,
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "`sys.exit(0)` when the tests are imported",
        "pytest exited with 3: internal error",
        LAST_LINES,
        test=f"{BOTH}sys.exit(0)\n",
        harness=Harness.CLEAN,
        kind=EXIT,
    ),
    crash(
        "a test that replaces pytest by another program (`exec`)",
        CUT,
        EARLY.format(0),
        RUNNING,
        test=f"{FIRST}def test_b(): os.execvp('true', ['true'])\n",
        results="1 passed",
        kind=EXIT,
    ),
    crash(
        "a test command that does not exist",
        f"the test command exited with 127; {NO_LOG.format(127)}",
        "last lines of pytest.log: no-such-program: No such file or directory",
        NOTHING.format(127),
        tests="no-such-program",
        product=Product.FAILED,
        kind=EXIT,
    ),
    crash(
        "a test that closes all files",
        "pytest exited with 1 before the end of its session",
        LAST_LINES,
        EARLY.format(1),
        RUNNING,
        test=f"{FIRST}def test_b(): os.closerange(0, 100)\n",
        product=Product.FAILED,
        results="1 passed",
        kind=EXIT,
    ),
)

KIND = "Crashes and hangs"


def fatal(name: str, number: str, test: str) -> Fault:
    """Return the fault of a test whose process a signal ends that it causes itself."""
    return crash(
        name,
        CUT,
        BY_SIGNAL.format("pytest", number),
        RUNNING,
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
        LIMIT.format("pytest"),
        RUNNING,
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
        "SIGSEGV (exit code 139)",
        "def test_b(): ctypes.string_at(0)\n",
    ),
    crash(
        "a segmentation fault when the tests are imported",
        CUT_EARLY,
        BY_SIGNAL.format("pytest", "SIGSEGV (exit code 139)"),
        test=f"{BOTH}ctypes.string_at(0)\n",
        product=Product.FAILED,
        kind=KIND,
    ),
    crash(
        "a segmentation fault at exit after a green suite",
        PASSED,
        "exit code 139 after the pytest summary",
        conftest="atexit.register(ctypes.string_at, 0)\n",
        harness=Harness.EXIT_AFTER_SUMMARY,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a segmentation fault while it installs",
        "stage install ended with signal SIGSEGV (exit code 139); its output is install.log",
        BY_SIGNAL.format("install", "SIGSEGV (exit code 139)"),
        install="python -c 'import ctypes; ctypes.string_at(0)'",
        product=Product.FAILED,
        kept=("install.log",),
        kind=KIND,
    ),
    fatal("`os.abort` in a test", "SIGABRT (exit code 134)", "def test_b(): os.abort()\n"),
    fatal("a bus error in a test", "SIGBUS (exit code 135)", TRUNCATED),
    endless("a fork bomb in a test", BOMB, **FEW),
    crash(
        "a test that starts 500 threads where 64 are allowed",
        RED,
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
        "stage install ended with signal SIGTERM (exit code 143); its output is install.log",
        LIMIT.format("install"),
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
        PASSED,
        test=f"{FIRST}def test_b():\n"
        "    subprocess.Popen(['setsid', '-f', 'sh', '-c', 'trap : TERM; sleep 600; sleep 600'])\n",
        harness=Harness.CLEAN,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a test that kills every process it can",
        PASSED,
        test=f"{FIRST}def test_b(): os.kill(-1, signal.SIGKILL)\n",
        harness=Harness.CLEAN,
        kind=KIND,
        **GREEN,
    ),
    crash(
        "a test that kills the supervisor of its stage",
        RED,
        test=f"{FIRST}def test_b(): os.kill(os.getppid(), signal.SIGKILL)\n",
        product=Product.FAILED,
        harness=Harness.CLEAN,
        results="1 passed, 1 failed",
        kind=KIND,
    ),
)
FAULTS = (*OS_EXIT, *CRASHES)
