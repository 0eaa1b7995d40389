"""The notes of a table row: what a reader must know, in a few words each."""

from __future__ import annotations

from ci.pytest_log import Outcome
from ci.results import Harness, Product, Verdict
from ci.text import counted
from ci.verdict import Case, code_after_summary

HOST = "host engine: a fresh virtual environment on this machine"

_HARNESS = {
    Harness.OOM_KILLED: "killed for lack of memory",
    Harness.TIMED_OUT: "timed out",
    Harness.LOST: "container lost",
    Harness.INFRASTRUCTURE: "infrastructure failure",
}


def notes_of(case: Case, verdict: Verdict) -> tuple[str, ...]:
    """Notes on a run that was judged."""
    engine = [HOST] if case.facts.engine == "host" else []
    return (*_verdict_notes(case, verdict), *engine, *case.facts.notes)


def _verdict_notes(case: Case, verdict: Verdict) -> list[str]:
    if case.facts.interrupted:
        return ["interrupted"]
    notes = [_product_note(case, verdict)]
    if verdict.harness is Harness.EXIT_AFTER_SUMMARY:
        notes.append(f"outer wrapper returned {code_after_summary(case)} after the pytest summary")
    elif verdict.harness is Harness.CRASHED:
        notes.append("process crashed" + _victim(case))
    elif verdict.harness is not Harness.CLEAN:
        notes.append(_HARNESS[verdict.harness])
    return notes


def _victim(case: Case) -> str:
    """The test that a process died in, where it is known."""
    if case.tests is None:
        return ""
    victims = case.tests.crashed or case.tests.running
    return f" in {victims[0]}" if victims else ""


def _product_note(case: Case, verdict: Verdict) -> str:
    if verdict.product is Product.PASSED:
        return "full suite passed"
    failed = [end.stage for end in case.record.finished_stages.values() if end.failed]
    if any(stage.name in failed for stage in case.commands):
        return f"stage {failed[0]} failed"
    if case.tests and verdict.product is Product.FAILED:
        failures, errors = map(case.tests.count, (Outcome.FAILED, Outcome.ERROR))
        parts = [f"{counted(failures, 'test')} failed"] if failures else []
        parts += [counted(errors, "error")] if errors else []
        if parts:
            return ", ".join(parts)
        ended = case.tests.exit_status is not None
        return "the suite failed" if ended else "the suite did not get to its end"
    return verdict.evidence[0].text
