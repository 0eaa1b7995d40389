"""The notes of a table row: what a reader must know, in a few words each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from ci.facts.case import Case
from ci.facts.difference import Difference, Kind, headline, lines_of
from ci.facts.harness import code_after_summary
from ci.facts.reruns import rerun_notes
from ci.facts.verdict import BREACHES, exit_status
from ci.model.results import COMPILED_ONLY, SIMULATED, Harness, OverloadCount, Product, Verdict
from ci.model.tests import INSTRUCTION_SET, KERNELS, NO_DEVICE, Outcome, TestOutcome
from ci.util.invocation import command
from ci.util.text import counted, first_names

FULL_SUITE = "full suite passed"
SELECTED_SUITE = "suite of the selected operators passed"
HOST = "host engine: a fresh virtual environment on this machine"

NOTICEABLE_WAIT_S = 10.0

_HARNESS = {
    Harness.OOM_KILLED: "killed for lack of memory",
    Harness.TIMED_OUT: "timed out",
    Harness.LOST: "container lost",
    Harness.INFRASTRUCTURE: "infrastructure failure",
}


def notes_of(case: Case, verdict: Verdict) -> tuple[str, ...]:
    """Notes on a run that was judged."""
    engine = [HOST] if case.facts.engine == "host" else []
    told = (
        *_verdict_notes(case, verdict),
        *_selection_notes(case),
        *_rerun_notes(case),
        *_simulated_notes(case),
        *_contract_notes(case),
        *_operator_notes(case),
        *_lease_notes(case),
    )
    return (*told, *engine, *case.facts.notes)


def _selection_notes(case: Case) -> list[str]:
    if case.selection is not None:
        return [str(case.selection)]
    return (
        [f"selected {case.selected}; no test says what of it the library has"]
        if case.selected and case.tests
        else []
    )


def _rerun_notes(case: Case) -> list[str]:
    failed = case.tests.named(Outcome.FAILED, Outcome.ERROR) if case.tests else ()
    return rerun_notes(case.reruns, failed, case.record)


def _lease_notes(case: Case) -> list[str]:
    waited = case.record.lease_wait_s
    return [f"device lease waited {waited:.0f} s"] if waited >= NOTICEABLE_WAIT_S else []


def _simulated_notes(case: Case) -> list[str]:
    if not case.simulated:
        return []
    if not case.compiled_only or case.tests is None:
        return [COMPILED_ONLY if case.compiled_only else SIMULATED]
    skipped = [t for t in case.tests.tests if t.operator and t.operator.reason == NO_DEVICE]
    what, _, rest = COMPILED_ONLY.partition(";")
    return [f"{what}, {counted(len(skipped), 'test')} skipped;{rest}"]


def cache_notes(environment: Mapping[str, object]) -> list[str]:
    """Whether the compilations were done before; nothing where there were none, or no cache."""
    match environment.get("compiler_cache"):
        case {"state": "cold"}:
            return ["cold compiler cache"]
        case {"state": "warm", "hit_rate": float(rate)}:
            return [f"warm compiler cache ({100 * rate:.0f} % hits)"]
        case _:
            return []


def _verdict_notes(case: Case, verdict: Verdict) -> list[str]:
    if case.facts.interrupted:
        return ["interrupted"]
    if failed := case.record.lease_failed:
        return [failed.reason]
    notes = [*case.misplaced] or _product_notes(case, verdict)
    if verdict.harness is Harness.EXIT_AFTER_SUMMARY:
        notes.append(f"outer wrapper returned {code_after_summary(case)} after the pytest summary")
    elif verdict.harness is Harness.CRASHED:
        notes.append(_crash(case))
    elif verdict.harness is not Harness.CLEAN:
        notes.append(_HARNESS[verdict.harness])
    return notes


def _crash(case: Case) -> str:
    """How a process ended early, and in which tests, where they are known."""
    victims = (case.tests.crashed or case.tests.running) if case.tests else ()
    if victims:
        return f"process crashed in {first_names(victims)}"
    end = case.pytest_end
    if end is None or end.signal is not None or case.summary is not None:
        return "process crashed"
    return f"pytest printed no closing summary (exit code {end.exit_code})"


def _product_notes(case: Case, verdict: Verdict) -> list[str]:
    """What the product's verdict rests on; a broken contract has notes of its own."""
    if verdict.product is Product.PASSED:
        if case.summary is None:  # the note on the harness says what happened
            return []
        if case.compiled_only:
            return ["all that runs without a device passed"]
        return [SELECTED_SUITE if case.selected else FULL_SUITE]
    failed = [end.stage for end in case.record.finished_stages.values() if end.failed]
    if any(stage.name in failed for stage in case.commands):
        return [f"stage {failed[0]} failed"]
    if case.tests is None or verdict.product is not Product.FAILED:
        return [verdict.evidence[0].text]
    failures, errors = map(case.tests.count, (Outcome.FAILED, Outcome.ERROR))
    parts = [f"{counted(failures, 'test')} failed"] if failures else []
    parts += [counted(errors, "error")] if errors else []
    if parts:
        return [", ".join(parts)]
    if exit_status(case):
        return [verdict.evidence[0].text]
    return [] if case.session_ended else ["the suite did not finish"]


def _contract_notes(case: Case) -> list[str]:
    if case.contract is None or case.tests is None:
        return []
    config = case.contract.config
    update = command("contract", case.platform, *(("--config", config) if config else ()))
    if case.contract.suite is None:
        return [f"no contract for {case.platform} yet; write it with {update}"]
    if case.changes is None:
        return []
    kinds = [kind for kind in Kind if kind is not Kind.NEWLY_FAILING and case.changes.of(kind)]
    found = [_headline(case.changes, kind) for kind in kinds]
    return [f"contract: {'; '.join(found)}; update with: {update}"] if found else []


def _headline(found: Difference, kind: Kind) -> str:
    """The count, and for what breaks the contract its largest group."""
    count = headline(kind, found)
    return f"{count}: {lines_of(found.of(kind), 1)[0]}" if kind in BREACHES else count


def _operator_notes(case: Case) -> list[str]:
    if case.tests is None:
        return []
    return [
        *_executed(case.overloads),
        *_kernels(case.overloads),
        *_beyond_the_processor(case.tests.tests),
        *_quarantined(case.tests.tests),
        *_differing(case.tests.tests),
    ]


def _executed(counts: Sequence[OverloadCount]) -> list[str]:
    """``overloads executed: 1,330 of 1,440``, slot by slot where there are several."""
    executed: Counter[int] = Counter()
    active: Counter[int] = Counter()
    for count in counts:
        # What was asked for elsewhere, and fell back or took another slot, counts nowhere.
        executed[count.slot] += min(count.executed, count.active)
        active[count.slot] += count.active
    shares = [
        f"{executed[slot]:,} of {number:,}{' on slot ' + str(slot) if len(active) > 1 else ''}"
        for slot, number in active.most_common()
        if number
    ]
    return [f"overloads executed: {', '.join(shares)}"] if shares else []


def _kernels(counts: Sequence[OverloadCount]) -> Iterator[str]:
    """``overloads passed: 22 by kernels of its own, 739 composite, 519 by the CPU fallback``."""
    passed: Counter[str] = Counter()
    for count in counts:
        passed.update(count.kernels)
    if passed.total():
        own, composite, fallback = (passed[kernel] for kernel in KERNELS)
        yield (
            f"overloads passed: {own:,} by kernels of its own, {composite:,} composite,"
            f" {fallback:,} by the CPU fallback"
        )


def _beyond_the_processor(tests: Sequence[TestOutcome]) -> Iterator[str]:
    needs = [t.operator.needs for t in tests if t.skip_reason == INSTRUCTION_SET and t.operator]
    if needs:
        what = "; ".join(dict.fromkeys(need for need in needs if need))
        yield f"{counted(len(needs), 'test')} skipped, the processor lacks {what}"


def _quarantined(tests: Sequence[TestOutcome]) -> Iterator[str]:
    """What is as bad as the quarantine says, and the references of what passes."""
    held: Counter[str] = Counter()
    stale: Counter[str] = Counter()
    for test in tests:
        if test.quarantine:
            (stale if test.outcome.good else held)[test.quarantine] += 1
    if held:
        yield f"{counted(held.total(), 'test')} quarantined: {', '.join(sorted(held))}"
    if stale:
        parts = [f"{name} in part" if name in held else name for name in sorted(stale)]
        yield f"quarantine stale: {', '.join(parts)}"


def _differing(tests: Sequence[TestOutcome]) -> Iterator[str]:
    names = {
        test.operator.overload
        for test in tests
        if test.operator is not None and (test.operator.against_cpu or "").startswith("differs")
    }
    if names:
        count = counted(len(names), "overload")
        yield f"not as on the CPU: {count}: {first_names(sorted(names))}"
