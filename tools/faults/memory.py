"""Memory that runs out, at every place of a run."""

from __future__ import annotations

import itertools
import string
from signal import SIGKILL
from typing import Any

from ci.facts.sentences import on_harness
from ci.model.verdicts import Evidence, Harness, Product
from tools.faults.findings import (
    BOTH_PASSED,
    CUT,
    CUT_IN_COLLECTION,
    DIED_IN_WORKER,
    SECOND_FAILED,
    SECOND_RUNNING,
    after_summary,
    failed,
)
from tools.faults.model import Fault

KIND = "Memory"
LIMIT = 128 << 20  # bytes: pytest with its plugins takes 35 MiB, the agent 20
EATS = "def eat(): return [bytearray(1 << 20) for _ in range(1000)]\n"
GREEN = "def test_a(): pass\ndef test_b(): pass\n"
IN_CHILD = (
    "import subprocess, sys\n"
    "PROGRAM = 'x = [bytearray(1 << 20) for _ in range(1000)]'\n"
    "def test_a(): pass\n"
    "def test_b(): subprocess.run([sys.executable, '-c', PROGRAM], check={check})\n"
)
# An array of 8 ** 8 numbers: the compiler takes more than a gigabyte.
LEVELS = string.ascii_uppercase[:8]
LARGE_SOURCE = "#define A 1,1,1,1,1,1,1,1,\n" + "".join(
    f"#define {each} {' '.join([inner] * 8)}\n" for inner, each in itertools.pairwise(LEVELS)
)


def killed(stage: str = "pytest") -> Evidence:
    return on_harness.killed_for_memory(1, stage, LIMIT, reached=True)


def out_of_memory(name: str, *evidence: Evidence, stage: str = "pytest", **given: Any) -> Fault:
    """Return a fault in which the kernel kills a process for memory."""
    usual = {
        "settings": {"memory_bytes": LIMIT},
        "product": Product.FAILED,
        "harness": Harness.OOM_KILLED,
        "evidence": (*evidence, killed(stage)),
        "exits": (1,),
    }
    return Fault(name=f"out of memory {name}", kind=KIND, **{**usual, **given})


FAULTS = (
    out_of_memory(
        "in a test",
        CUT,
        SECOND_RUNNING,
        files={"test_it.py": f"{EATS}def test_a(): pass\ndef test_b(): eat()\n"},
        results="1 passed",
    ),
    out_of_memory(
        "in a fixture",
        CUT,
        files={
            "test_it.py": f"import pytest\n{EATS}@pytest.fixture\ndef f(): eat()\n"
            "def test_a(): pass\ndef test_b(f): pass\n"
        },
        results="1 passed",
    ),
    out_of_memory(
        "while pytest collects",
        CUT_IN_COLLECTION,
        files={"test_it.py": f"{EATS}eat()\n{GREEN}"},
    ),
    out_of_memory(
        "after the summary",
        files={
            "test_it.py": GREEN,
            "conftest.py": f"{EATS}def pytest_unconfigure(config): eat()\n",
        },
        product=Product.PASSED,
        harness=Harness.EXIT_AFTER_SUMMARY,
        evidence=(BOTH_PASSED, after_summary(137), killed()),
        exits=(0,),
        results="2 passed",
    ),
    out_of_memory(
        "in a child of a test, which fails",
        SECOND_FAILED,
        files={"test_it.py": IN_CHILD.format(check=True)},
        results="1 passed, 1 failed",
    ),
    out_of_memory(
        "in a child of a test, which does not look",
        files={"test_it.py": IN_CHILD.format(check=False)},
        product=Product.PASSED,
        evidence=(
            BOTH_PASSED,
            on_harness.killed_for_memory(None, None, LIMIT, reached=True),
            on_harness.survived_kills(1, "pytest"),
        ),
        exits=(0,),
        results="2 passed",
    ),
    out_of_memory(
        "in a worker of pytest-xdist",
        SECOND_FAILED,
        DIED_IN_WORKER,
        files={"test_it.py": f"{EATS}def test_a(): pass\ndef test_b(): eat()\n"},
        tests="python -m pytest -n 2 {folder}",
        results="1 passed, 1 failed",
    ),
    out_of_memory(
        "while it installs",
        failed("install", 137, SIGKILL),
        stage="install",
        files={"test_it.py": GREEN, "eat.py": f"{EATS}eat()\n"},
        install="python {folder}/eat.py",
        kept=("install.log",),
    ),
    out_of_memory(
        "in a compiler",
        failed("install", 1),
        stage="install",
        files={"test_it.py": GREEN, "large.c": f"{LARGE_SOURCE}int v[] = {{ H }};\n"},
        install="gcc -c -o /dev/null {folder}/large.c",
        kept=("install.log",),
    ),
    out_of_memory(
        "at a limit of the test's own (RLIMIT_AS)",
        files={
            "test_it.py": f"import resource\n{EATS}"
            "resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))\n"
            "def test_a(): pass\ndef test_b(): eat()\n"
        },
        settings={},
        harness=Harness.CLEAN,
        evidence=(SECOND_FAILED,),
        results="1 passed, 1 failed",
    ),
)
