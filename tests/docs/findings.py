"""An example of each sentence of a verdict and of each note, for ``docs/reference/findings.md``.

The page is the golden file of the texts: a changed sentence changes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ci.facts.sentences import SENTENCES
from ci.facts.sentences.on_harness import Source
from ci.facts.sentences.on_tests import Reporter
from ci.facts.sentences.sentence import Exit
from ci.model.verdicts import Evidence, Harness

TESTS = ["tests/test_model.py::test_forward", "tests/test_model.py::test_load"]
# By the name of the parameter, or by code and name where another sentence needs another value.
VALUES: dict[str, Any] = {
    "after": "unhealthy",
    "after_some": True,
    "attempt": 1,
    "attempts": 6,
    "before": "healthy",
    "began": 12,
    "by_agent": False,
    "change": "1 test vanished",
    "changes": ["3 tests added"],
    "collected": 40,
    "composite": 739,
    "count": 2,
    "detail": ": usage error",
    "device": "GPU-3c1d",
    "end": Exit(1),
    "ended": True,
    "ending": "maximum crashed workers reached: 8",
    "engine": "big",
    "entries": ["#123"],
    "errors": 1,
    "exit_code": 137,
    "failed": 2,
    "fallback": 519,
    "files": 12,
    "has_summary": False,
    "harness": Harness.INFRASTRUCTURE,
    "hit_rate": 0.97,
    "how": "stage install ended with exit code 0 after 12.000 s; the file has exit code 0 after"
    " 0.001 s",
    "inner": None,
    "is_lost": False,
    "is_wrapped": False,
    "limit": 8 * 2**30,
    "limit_s": 60.0,
    "line": "float32 of mul.out (slot 8; was passed)",
    "lines": 3,
    "longest": 0,
    "modules": ["tiny._fast"],
    "name": "infini-ci-20261120T101500Z-0123abcd-0001-cpu",
    "needs": ["avx512_fp16"],
    "of": 1440,
    "operators": "abs",
    "overloads": 68,
    "own": 22,
    "packages": ["hatchling>=1"],
    "passed": 5,
    "path": "build/out",
    "platform": "cpu",
    "processes": 2,
    "reached": True,
    "reason": "no engine answers",
    "reasons": ["300 no device", "142 dtype unsupported"],
    "recorded": 0,
    "reporter": Reporter.PYTEST,
    "removed": 3,
    "repeats": False,
    "request": "docker stop",
    "results": 12,
    "run": "python -m ci run cpu",
    "runs": 2,
    "seconds": 72.0,
    "sender": "this caller",
    "sha256": "5e884898da28" + "0" * 52,
    "shard": 1,
    "shards": 2,
    "shares": ["1,326 of 1,440 on slot 8"],
    "shows_pytest": True,
    "signal": 15,
    "skipped": 3,
    "source": Source.LOG,
    "stage": "pytest",
    "started": True,
    "status": 4,
    "subtests": 0,
    "tests": TESTS,
    "text": "base image cannot be pulled; built on an offline Debian base",
    "update": "python -m ci contract cpu",
    "versions": ["Python 3.12.3", "torch 2.11.0", "g++ 13.3.0"],
    "what": "file",
    "where": "`addopts` of pytest.ini or PYTEST_ADDOPTS",
    "artifact-cut.name": "logs",
    "artifact-missing.name": "coverage",
    "benchmarks-unreadable.fault": "the stage wrote no such file",
    "benchmarks-unreadable.path": "build/benchmarks.json",
    "benchmarks-unreadable.stage": "bench",
    "benchmarks-without-value.names": ["BM_Sum/8", "BM_Sum/64"],
    "benchmarks-without-value.stage": "bench",
    "differs-from-cpu.overloads": ["add.out", "mul.out"],
    "distribution-untested.names": ["tiny-1.0-py3-none-any.whl"],
    "exit-after-summary.inner": 0,
    "exit-called.reason": "service is down",
    "exit-called-in-file.reason": "service is down",
    "failed-counts.subtests": 2,
    "given-tested.name": "tiny-1.0-py3-none-any.whl",
    "given-untested.name": "tiny-1.0-py3-none-any.whl",
    "instructions-missing.tests": 2,
    "last-lines.lines": ["ERROR: file or directory not found: tests"],
    "lease-failed.reason": "device lease timed out after 3600 s: GPU-3c1d is busy",
    "misplaced.how": "requested cuda; 2 of 2 tests were made for cpu: add.out-float32-cpu-slot8",
    "network-remained.reason": "stage pytest needs a container without a network; eth0 remained for"
    " 3600 s, as no caller disconnected it",
    "no-result.of": "commit",
    "only-selected.of": "commit",
    "only-selected.run": "python -m ci run cpu --select all",
    "only-selected.runs": ["20261120T101500Z-0123abcd-0001 (abs)"],
    "quarantined.tests": 1,
    "reruns.tests": 3,
    "reruns-ended.reason": "rerun 2 of 3 reached the time limit of 600 s",
    "several-runs.status": "1",
    "shards.seconds": [45.0, 43.0],
    "shards-differ.how": "more than one shard ran tests/test_model.py::test_load",
    "skipped-tests.tests": 442,
    "stage-killed.end": Exit(139, 11),
    "stage-lost.reason": "the supervisor of stage pytest died",
    "torch-decided.of": 3,
    "torch-decided.tests": 2,
    "wheel-shadowed.names": ["tiny"],
}


def examples() -> Iterator[tuple[Evidence, str]]:
    """Yield an example of each sentence, and what it means."""
    for code, sentence in SENTENCES.items():
        names = sentence.signature.parameters
        values = {it: VALUES[key if (key := f"{code}.{it}") in VALUES else it] for it in names}
        yield sentence(**values), inspect.getdoc(sentence.write) or ""
