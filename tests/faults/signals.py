"""Signals to the processes of a run, in every stage."""

from __future__ import annotations

import signal

from ci.model.results import Harness, Product
from tests.faults.model import KILLED, Fault, Left
from tests.faults.running import kill_orchestrator, send

KIND = "Signals"
SLOW = {
    "test_it.py": "import time\ndef test_a(): pass\ndef test_b(): print('begun'); time.sleep(4)\n"
}
HANGS = {
    "test_it.py": "import time\ndef test_a(): pass\ndef test_b(): print('begun'); time.sleep(600)\n"
}
CUT = "pytest did not finish; its log has 1 result"
RUNNING = "pytest was running …/test_it.py::test_b"

FAULTS = (
    Fault(
        name="SIGKILL to the orchestrator while the tests run",
        kind=KIND,
        files=SLOW,
        act=kill_orchestrator(),
        product=Product.PASSED,
        harness=Harness.CLEAN,
        evidence=("pytest ended with status 0: 2 passed, 0 skipped",),
        exits=(KILLED, 0),
        results="2 passed",
        left=Left.CONTAINER,
    ),
    Fault(
        name="SIGTERM to the orchestrator while the tests run",
        kind=KIND,
        files=HANGS,
        act=kill_orchestrator(signal.SIGTERM),
        alone=True,
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, "the run was interrupted by its caller", RUNNING),
        exits=(130,),
        results="1 passed",
    ),
    Fault(
        name="SIGKILL to the agent while the tests run",
        kind=KIND,
        files=HANGS,
        act=send("agent", signal.SIGKILL),
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, "the agent ended without a result, exit code 137", RUNNING),
        exits=(3,),
        results="1 passed",
    ),
    Fault(
        name="SIGKILL to the supervisor of the stage while the tests run",
        kind=KIND,
        files=HANGS,
        act=send("supervisor", signal.SIGKILL),
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, "the supervisor of stage pytest was killed by SIGKILL", RUNNING),
        exits=(3,),
        results="1 passed",
    ),
    Fault(
        name="SIGKILL to pytest while the tests run",
        kind=KIND,
        files=HANGS,
        act=send("^python -m pytest", signal.SIGKILL),
        product=Product.INCOMPLETE,
        harness=Harness.CRASHED,
        evidence=(
            CUT,
            "stage pytest was killed by signal SIGKILL (exit code 137) after … s",
            "SIGKILL came from outside: the kernel counts no out-of-memory kill",
            RUNNING,
        ),
        exits=(1,),
        results="1 passed",
    ),
)
