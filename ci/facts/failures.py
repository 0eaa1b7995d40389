"""The first failures of a platform, each with a line that shows why.

A failed test has its first assertion line, and what differs. A stage that failed has the line of
its log that names the error: a reader needs neither the traceback nor the log to know what broke.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ci.facts.case import Case, exit_of
from ci.facts.files import read_log_lines
from ci.facts.result_files import ResultFiles
from ci.facts.verdict import broken_contract
from ci.model.fields import LONGEST_MESSAGE, LONGEST_TEST, MOST_FAILURES
from ci.model.outcomes import Outcome
from ci.model.results import Failure
from ci.model.verdicts import Harness, Verdict
from ci.util.text import mask_credentials, strip_controls

# Errors in a build's log, the most telling kind first; the first line of that kind counts. pip
# prints its own error before the output of the build that caused it.
_ERRORS = tuple(
    re.compile(pattern)
    for pattern in (
        r":\d+: (?:fatal )?error:|\(\d+\): (?:catastrophic )?error\b",  # compilers, nvcc
        r"CMake Error\b",
        r"\berror: (?![a-z]+(?:-[a-z]+)+$)",  # not the name of an error of pip's
        r"^\s*\u00d7 (?!Encountered error|.* did not run successfully)",  # what pip says of it
        r"undefined reference to|cannot find -l|ERROR: |^E?\s*(?:\w+\.)*\w*(?:Error|Exception): ",
    )
)
_CONTEXT = "╰─> "
_MARK = re.compile(r"^E {2,}")  # of pytest, before the lines of an error
_CMAKE, _PIP = 1, 3  # in `_ERRORS`: the next line with text goes on
_PIPS = re.compile(r"^\u00d7 (.*?)\.?$")
# A process died or was killed: the test that it ran has no record of its own.
ENDED_IN = "the process ended in this test"  # begins the message
DIED = frozenset({Harness.CRASHED, Harness.OOM_KILLED, Harness.TIMED_OUT})
ENDED_USUALLY = frozenset({Harness.CLEAN, Harness.EXIT_AFTER_SUMMARY})

_ASSERTION, _ASSERT = "AssertionError: ", "assert "
# Assertions that do not show what differs: the lines below them do.
_BARE = re.compile(
    r"assert (?:(?:not )?(?:True|False|None|0|tensor\(False\)|np\.False_)"
    r"|(?:True|False) (?:==|is|!=|is not) (?:True|False))"
)
_NOT_CLOSE = re.compile(r"(.*: )?[\w -]+ are not (?:close|equal)!")
# What pytest and torch.testing.assert_close write below an assertion.
_DIFFERENCE = re.compile(
    r"(?:At index|Left contains|Right contains|Extra items in|Mismatched elements:"
    r"|Greatest absolute difference:|Expected ) *\S"
)
_WHERE = re.compile(r"^\+ {2,}where ")
# The beginning of a subtest's reason, as `ci.facts.pytest_log` writes it.
_SUBTEST = re.compile(
    r"^(subtest (?:\[.*?\](?: \(.*?\))?|\(.*?\)): |the test: |and (?=\d+ more subtest))",
    re.MULTILINE,
)
_PROCESS = re.compile(r"(?:\w+\.)*CalledProcessError: Command '(.*)' (returned .*|died .*)")


def failures_of(case: Case, verdict: Verdict, files: ResultFiles) -> tuple[Failure, ...]:
    """Return the first failures: of the stages before the tests, then in the order of the log."""
    return tuple(islice(_failures(case, verdict, files), MOST_FAILURES))


def _failures(case: Case, verdict: Verdict, files: ResultFiles) -> Iterator[Failure]:
    name, end = case.pytest_stage.name, case.pytest_end
    # A stage that was ended from outside, as by Ctrl-C, did not fail.
    stopped = {it.stage for it in case.ends if it.interrupted}
    failed = [stage.name for stage in case.failed_commands]
    if case.tests is None and end is not None and end.failed:
        failed.append(name)
    for stage in failed:
        if stage in stopped:
            continue
        log = read_log_lines(files.folder / f"{stage}.log")
        yield _failure(stage, error_line(log))
    for listed in case.missing_failures if end is not None and end.failed else ():
        why = listed.message or "pytest listed it as failed; its log lacks the result"
        yield _failure(name, why, test=listed.test)
    if case.tests is None:
        return
    bad = [test for test in case.tests.tests if test.outcome.bad]
    for test in bad:
        message = reason_line(test.reason, test.node_id)
        yield _failure(name, message, test=test.node_id, outcome=test.outcome)
    if verdict.harness in DIED:
        reported = {test.node_id for test in bad}
        for node_id in case.tests.running:
            if node_id not in reported:
                died = case.shards.get(case.tests.shards.get(node_id, 0), end)
                how = f" with {exit_of(died)}" if died else ""
                yield _failure(name, f"{ENDED_IN}{how}", test=node_id)
    if broken := broken_contract(case):
        file = case.plan.contract.file if case.plan.contract else None
        yield _failure(name, broken[0].text, contract=file)


def _failure(
    stage: str,
    message: str | None,
    *,
    test: str | None = None,
    outcome: Outcome = Outcome.FAILED,
    contract: str | None = None,
) -> Failure:
    """Make a failure without passwords, and of limited length."""
    return Failure(
        stage=stage,
        test=test and mask_credentials(test)[:LONGEST_TEST],
        outcome=Outcome.ERROR if outcome is Outcome.ERROR else Outcome.FAILED,
        message=mask_credentials(message or "")[:LONGEST_MESSAGE].strip() or None,
        contract=contract,
    )


def reason_line(message: str | None, test: str = "") -> str | None:
    """Return one line of a test's message that shows what differs, its most telling part first."""
    lines = [line.strip() for line in (message or "").splitlines() if line.strip()]
    if not lines:
        return None
    if len(parts := _SUBTEST.split(message or "")) > 1:
        # What precedes the first one is empty; a test's own failure follows the last one.
        pairs = zip(parts[1::2], parts[2::2], strict=True)
        return "; ".join(f"{name}{reason_line(text) or ''}" for name, text in pairs)
    if lines[0].startswith("worker ") and (death := lines[0].partition(f"{test!r}"))[1]:
        return f"its process died{death[2]}"
    first = lines[0].removeprefix(_ASSERTION)
    if process := _PROCESS.fullmatch(first):
        return f"a process {process[2].rstrip('.')}: {process[1]}"
    details = [line for line in lines[1:] if _DIFFERENCE.match(line)]
    if (unequal := _NOT_CLOSE.fullmatch(first)) and details:
        return (unequal[1] or "") + "; ".join(details[:2])
    if first.startswith(_ASSERT):
        return _assertion(first, lines, details)
    if first.endswith(":"):
        return " ".join([first, *lines[1:2]])
    asserted = next((line for line in lines[1:] if line.startswith(_ASSERT)), None)
    if asserted and lines[0].startswith(_ASSERTION):  # after a message of the test's author
        return f"{first}: {_assertion(asserted, lines, details)}"
    return first


def _assertion(text: str, lines: Sequence[str], details: Sequence[str]) -> str:
    """Return an assertion with the values that pytest did not show in it."""
    if _BARE.fullmatch(text):
        where = [_WHERE.sub("", line) for line in lines if _WHERE.match(line)]
        return ": ".join([text, *where[:1]])
    return "; ".join([*details[:1], text]) if "..." in text else text


def error_line(log: Iterable[str]) -> str | None:
    """Return the line of a build's log that names the error; without one, its last line."""
    found: dict[int, str] = {}
    last = None
    follows: int | None = None
    for line in map(strip_controls, log):
        text = line.strip()
        if not text:
            continue
        last = text
        if follows == _CMAKE:
            found[_CMAKE] += f" {text}"
        elif follows == _PIP and text.startswith(_CONTEXT):
            found[_PIP] += f": {text.removeprefix(_CONTEXT)}"
        follows = None
        kind = next((kind for kind, error in enumerate(_ERRORS) if error.search(line)), None)
        if kind is not None and kind not in found:
            found[kind] = _PIPS.sub(r"\1", text)
            follows = kind if kind == _PIP or (kind == _CMAKE and text.endswith(":")) else None
    named = found[min(found)] if found else last
    return named and _MARK.sub("", named)
