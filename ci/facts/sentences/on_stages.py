"""How a run began, and how its stages and attempts ended."""

from __future__ import annotations

from collections.abc import Sequence

from ci.facts.sentences.sentence import MOST_NAMED, Exit, fact, likely, unknown
from ci.model.verdicts import Verdict
from ci.util.text import counted, first_line, join_names

NOTICEABLE_END_S = 1.0  # most processes end within it after SIGTERM
PENDING = "this platform had no result yet when these results were written"


@fact
def platform_failed(reason: str) -> str:
    """Remove the cause that the text names, and run the platform again."""
    return reason


def is_pending(verdict: Verdict) -> bool:
    """Whether the run had not got to the platform, or through it, when its results were saved."""
    return any(
        it.code == platform_failed.code and it.parameters.get("reason") == PENDING
        for it in verdict.evidence
    )


@fact
def not_run(reason: str) -> str:
    """Remove the cause that the text names, and run the platform again."""
    return f"not run: {first_line(reason)}"


@fact
def not_judged(reason: str) -> str:
    """Remove the cause that the text names; `--resume` judges the platform again."""
    return f"not judged: {first_line(reason)}"


@fact
def no_result(of: str, run: str) -> str:
    """Run the command."""
    return (
        f"no run of this {of} has a result: its job did not start, its results were lost,"
        f" or its sources had uncommitted changes. Run it: {run}"
    )


@fact
def only_selected(of: str, runs: Sequence[str], run: str) -> str:
    """`report` expected a run of all operators: run the command."""
    return (
        f"no result of all operators: this {of} has only selected ones:"
        f" {join_names(runs, MOST_NAMED)}. Run all of them: {run}"
    )


@unknown
def record_missing() -> str:
    """The connection to the container was lost: use `--resume`."""
    return "the agent's record could not be fetched, so a stage may have started"


@fact
def no_stage_started() -> str:
    """The evidence on the harness says why."""
    return "no stage started"


# Stages


@fact
def command_failed(stage: str, end: Exit) -> str:
    """Read the stage's log: the compiler's first error is usually the cause."""
    return f"stage {stage} ended with {end}; its output is {stage}.log"


@fact
def stage_failed(stage: str) -> str:
    """Read the stage's log: the compiler's first error is usually the cause."""
    return f"stage {stage} failed"


@fact
def stage_without_result(stage: str) -> str:
    """The run ended before this stage: the evidence on the harness says why."""
    return f"stage {stage} has no result"


@fact
def stage_left_out(stage: str) -> str:
    """`bisect` and `rerun-alarm` run the stages that another one needs, and that one."""
    return f"stage {stage} was left out: only another stage was asked for"


@fact
def time_limit(stage: str, limit_s: float, seconds: float) -> str:
    """Look for a hang in the named test, or raise `timeout_s` of the stage."""
    longer = max(seconds - limit_s, 0.0)
    text = f"stage {stage} reached its time limit of {limit_s:g} s"
    return text if longer < NOTICEABLE_END_S else f"{text}; it took {longer:.0f} s to end it"


@fact
def stage_killed(stage: str, end: Exit, seconds: float) -> str:
    """Of a crash, run the named test alone. Of SIGKILL or SIGTERM, find the sender."""
    return f"stage {stage} was killed by {end} after {seconds:.0f} s"


@unknown
def killer_unknown() -> str:
    """The sender may be the kernel, for lack of memory, or a user."""
    why = "the kernel's out-of-memory counter is not readable"
    return f"the sender of SIGKILL is unknown: {why}"


@likely
def killed_from_outside() -> str:
    """Find the sender: another program or user of the machine."""
    return "SIGKILL came from outside: the kernel counts no out-of-memory kill"


@fact
def disk_full(text: str | None) -> str:
    """Make room on the disk of the engine, or of this machine; then run the platform again."""
    return text or "the disk of the stages was full, also for the agent's records"


@fact
def stage_lost(reason: str) -> str:
    """Find out what killed the agent's process; then run the platform again."""
    return reason


# Attempts


@fact
def attempt_failed(attempt: int, engine: str, reason: str) -> str:
    """Another attempt followed it."""
    return f"attempt {attempt} on engine {engine} failed: {reason}"


@fact
def no_further_attempt(reason: str) -> str:
    """Remove the cause that the text names."""
    return f"no further attempt: {reason}"


@fact
def earlier_attempts(count: int) -> str:
    """Look at the evidence: an engine may need repair."""
    return f"{counted(count, 'earlier attempt')} failed: see the evidence"
