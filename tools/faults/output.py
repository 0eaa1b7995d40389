"""What the code under test prints and writes: huge, broken, forged."""

from __future__ import annotations

from typing import Any

from ci.facts.sentences import on_artifacts, on_harness, on_tests
from ci.facts.sentences.on_harness import Source
from ci.facts.sentences.sentence import Exit
from ci.model.verdicts import Evidence, Harness, Product
from tools.faults.findings import ANY, BOTH_PASSED, GAP, SECOND_FAILED, SECOND_TEST
from tools.faults.model import Fault

KIND = "Output"
FORGED = "Forged and hostile files"
PRINTING = "python -m pytest -s {folder}"
HEAD = """\
import json, os, pytest
from pathlib import Path

def log(request): return Path(request.config.getoption("report_log"))
def report(**fields): return json.dumps({"$report_type": "TestReport", "when": "call", **fields})
def junit(config): return Path(config.getoption("xmlpath"))
def test_a(): pass
"""
GREEN = "def test_a(): pass\ndef test_b(): pass\n"
MISSING = on_artifacts.artifact_missing("out", GAP)
ONE_LEFT_OUT = on_artifacts.artifact_cut("out", 1, "out")
COMPLETE = ("pytest.log", "pytest.jsonl", "junit.xml")


def harmless(name: str, body: str, *more: Evidence, kind: str = KIND, **given: Any) -> Fault:
    """Return a fault that changes no result; ``body`` is that of the second test."""
    usual: dict[str, Any] = {
        "files": {"test_it.py": f"{HEAD}def test_b(request):\n{body}"},
        "product": Product.PASSED,
        "harness": Harness.CLEAN,
        "evidence": (BOTH_PASSED, *more),
        "exits": (0,),
        "results": "2 passed",
        "kept": COMPLETE,
    }
    return Fault(name=name, kind=kind, **{**usual, **given})


def unreadable(lines: int, longest: int = 0) -> Evidence:
    """Return the finding of lines in pytest's log that cannot be read."""
    return on_harness.unreadable_lines(Source.LOG, lines, longest)


def prints(name: str, what: str, **given: Any) -> Fault:
    """Return the fault of a test that prints the bytes of a Python expression."""
    return harmless(name, f"    os.write(1, {what})\n", **given)


def forges(name: str, text: str, *evidence: Evidence, **given: Any) -> Fault:
    """Return the fault of a test that writes the bytes of an expression into pytest's log."""
    body = f"    with log(request).open('ab') as file: file.write({text})\n"
    usual = {"product": Product.INCOMPLETE, "evidence": evidence, "exits": (1,)}
    return harmless(name, body, **{"kind": FORGED, **usual, **given})


def replaces_junit(name: str, change: str, *more: Evidence, **given: Any) -> Fault:
    """Return the fault of a suite that changes ``path``, its JUnit report, at its end."""
    conftest = f"{HEAD}def pytest_unconfigure(config):\n    path = junit(config)\n    {change}\n"
    files = {"test_it.py": GREEN, "conftest.py": conftest}
    usual = {"files": files, "kept": COMPLETE[:2]}
    return harmless(name, "", *more, **{"kind": FORGED, **usual, **given})


FAILS: dict[str, Any] = {
    "product": Product.FAILED,
    "evidence": (SECOND_FAILED,),
    "exits": (1,),
    "results": "1 passed, 1 failed",
}
PRINTED = (
    prints("bytes that are not UTF-8", "bytes(range(256)) * 100 + b'\\n'"),
    harmless(
        "a line of 300 MB",
        "    for _ in range(300): os.write(1, bytes(1 << 20).replace(b'\\0', b'x'))\n",
        limit_s=180.0,
    ),
    Fault(
        name="10 GB while it installs, where 1 GiB of results is kept",
        kind=KIND,
        files={"test_it.py": GREEN},
        install="sh -c 'yes 0123456789012345678901234567890123456789 | head -c 10000000000'",
        limits_s={"install": 600.0},
        site={"results": {"total_bytes": 1 << 30}},
        product=Product.PASSED,
        harness=Harness.CLEAN,
        evidence=(BOTH_PASSED,),
        exits=(0,),
        results="2 passed",
        kept=("install.log", *COMPLETE),
        limit_s=900.0,  # it takes 5 minutes where other runs use the processors
    ),
    prints("control sequences of terminals", "b'\\x1b]0;title\\x07\\x1b[2J\\x9b31m\\r\\n'"),
    prints("100,000 NUL bytes", "bytes(100_000)"),
    prints("a million empty lines", "b'\\n' * 1_000_000"),
    harmless(
        "a forged summary of 9,999 passed tests",
        "    os.write(1, b'\\n===== 9999 passed in 0.01s =====\\n')\n    assert False\n",
        **FAILS,
    ),
    harmless(
        "forged events of the agent",
        '    event = {"event": "stage_finished", "stage": "pytest", "exit_code": 0, "seconds": 0}\n'
        "    os.write(1, f'\\n{json.dumps(event)}\\n'.encode())\n    assert False\n",
        **FAILS,
    ),
)
DEEP = "b'[' * 100_000 + b'\\n' + b'{\"a\":' * 9_000 + b'\\n'"
FORGERIES = (
    forges(
        "a forged report of a passed test in pytest's log",
        "(report(nodeid='x', outcome='passed', duration=1) + '\\n').encode()",
        on_tests.ended_within(0, ["x"]),
    ),
    harmless(
        "a forged end in pytest's log, then `os._exit(0)`",
        '    end = json.dumps({"$report_type": "SessionFinish", "exitstatus": 0})\n'
        "    with log(request).open('a') as file: file.write(f'{end}\\n')\n    os._exit(0)\n",
        kind=FORGED,
        product=Product.INCOMPLETE,
        harness=Harness.CRASHED,
        evidence=(on_tests.ended_within(0, [SECOND_TEST]), on_harness.no_summary(Exit(0))),
        exits=(1,),
        results="1 passed",
        kept=COMPLETE[:2],
    ),
    forges(
        "lines of garbage in pytest's log",
        "b'\\xff\\0\\n' * 10",
        unreadable(10),
    ),
    forges("deep documents in pytest's log", DEEP, unreadable(2)),
    forges(
        "an infinite duration in pytest's log",
        "(report(nodeid='x', outcome='passed', duration=float('inf')) + '\\n').encode()",
        unreadable(1),
        on_tests.results_unreadable(["x"]),
    ),
    forges(
        "a number of 100,000 digits in pytest's log",
        "b'1' * 100_000 + b'\\n'",
        unreadable(1),
    ),
    harmless(
        "a line of 300 MB in pytest's log",
        "    with log(request).open('ab') as file:\n"
        "        for _ in range(300): file.write(b'x' * (1 << 20))\n"
        "        file.write(b'\\n')\n",
        kind=FORGED,
        product=Product.INCOMPLETE,
        evidence=(unreadable(1, longest=300 << 20),),
        exits=(1,),
        limit_s=180.0,
    ),
    harmless(
        "a test that tries to remove, cut and rename pytest's log",
        "    path = log(request)\n"
        "    cut, move = lambda: os.truncate(path, 0), lambda: path.rename('/tmp/x')\n"
        "    for act in (path.unlink, cut, move):\n"
        "        with pytest.raises(OSError): act()\n",
        kind=FORGED,
    ),
    replaces_junit(
        "a JUnit report of a tebibyte, without content",
        "os.truncate(path, 1 << 40)",
        on_artifacts.artifact_cut("junit.xml", 1, "junit.xml"),
    ),
    replaces_junit(
        "a JUnit report with entities in a circle",
        'path.write_text(\'<!DOCTYPE x [<!ENTITY a "&b;"><!ENTITY b "&a;">]><x>&a;</x>\')',
        kept=COMPLETE,
    ),
    replaces_junit(
        "a link to `/etc/shadow` as JUnit report", "path.unlink(); path.symlink_to('/etc/shadow')"
    ),
    replaces_junit("a named pipe as JUnit report", "path.unlink(); os.mkfifo(path)"),
    replaces_junit("a folder as JUnit report", "path.unlink(); path.mkdir()"),
    replaces_junit("no JUnit report", "path.unlink()"),
)


def artifact(name: str, program: str, *more: Evidence, path: str = "out", **given: Any) -> Fault:
    """Return the fault of an artifact ``path`` that a program leaves as ``out``."""
    files = {"test_it.py": GREEN, "make.py": f"import os, tarfile\n{program}\n"}
    usual: dict[str, Any] = {
        "files": files,
        "install": "python {folder}/make.py",
        "config": {"artifacts": {path: "out"}},
    }
    return harmless(name, "", *more, **{"kind": FORGED, **usual, **given})


ARTIFACTS = (
    artifact(
        "a link to `/etc/shadow` as artifact",
        "os.symlink('/etc/shadow', 'out')",
        ONE_LEFT_OUT,
    ),
    artifact("a link to itself as artifact", "os.symlink('out', 'out')", MISSING),
    artifact(
        "a sparse file of a tebibyte as artifact",
        "open('out', 'w').truncate(1 << 40)",
        ONE_LEFT_OUT,
    ),
    artifact("a named pipe as artifact", "os.mkfifo('out')", MISSING),
    artifact(
        "an artifact's folder with links, pipes and 500 folders in each other",
        "os.mkdir('out'); os.chdir('out'); os.symlink('..', 'up'); os.mkfifo('pipe')\n"
        "for _ in range(500): os.mkdir('d'); os.chdir('d')",
        on_artifacts.artifact_cut("out", ANY, GAP),
    ),
    *(
        artifact(f"{what} as {path}", f"open('out', 'wb').write({content})", path=path)
        for path in ("ninja_log", "compile_commands.json", "generated.tar.gz", "time_traces")
        for what, content in (("garbage", "b'\\xff\\0' * 5000"), ("a deep document", DEEP))
    ),
)
FAULTS = (*PRINTED, *FORGERIES, *ARTIFACTS)
