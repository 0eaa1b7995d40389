"""The notes of a table row: short texts about the run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ci.errors import UsageError
from ci.facts.case import Case
from ci.facts.contract import check_recordable
from ci.facts.difference import ChangeKind, group_lines
from ci.facts.pytest_verdict import besides_failures, exit_status
from ci.facts.verdict import BREACHES, code_after_summary
from ci.model.details import Rerun
from ci.model.results import COMPILED_ONLY, SIMULATED, Harness, OverloadCount, Product, Verdict
from ci.model.tests import INSTRUCTION_SET, KERNELS, NO_DEVICE, Outcome, TestOutcome
from ci.protocol.events import LeaseFailed, LeaseTaken, NetworkRemained, RerunsEnded, RunRecord
from ci.protocol.job import StagePlan
from ci.protocol.pytest_status import is_pytest
from ci.util.invocation import command
from ci.util.text import counted, join_names

FULL_SUITE = "full suite passed"
SELECTED_SUITE = "suite of the selected operators passed"
HOST = "host engine: a fresh virtual environment on this machine, without isolation"

NO_ISOLATION = "--no-build-isolation"
MODULE = re.compile(r"\w+(\.\w+)*")
NOTICEABLE_WAIT_S = 10.0  # shorter waits do not matter in a suite of minutes

_HARNESS = {
    Harness.OOM_KILLED: "killed for lack of memory",
    Harness.TIMED_OUT: "timed out",
    Harness.LOST: "container lost",
    Harness.INFRASTRUCTURE: "infrastructure failure",
}


def notes_of(case: Case, verdict: Verdict) -> tuple[str, ...]:
    """Return the notes on a judged run."""
    failed = case.tests.node_ids(Outcome.FAILED, Outcome.ERROR) if case.tests else ()
    tests = case.tests.tests if case.tests else ()
    if case.selection is not None:
        selected = [str(case.selection)]
    else:
        unknown = f"selected {case.selected}; no test recorded which of them the library has"
        selected = [unknown] if case.selected and case.tests else []
    waited = sum(lease.waited_s for lease in case.record.every(LeaseTaken))
    return (
        *_verdict_notes(case, verdict),
        *selected,
        *_shard_notes(case),
        *rerun_notes(case.reruns, failed, case.record),
        *_simulated_notes(case),
        *_contract_notes(case, verdict),
        # The overloads of a suite that was cut short are only those that it reached.
        *(_executed_notes(case.overloads) if case.session_ended else ()),
        *_kernel_notes(case.overloads),
        *_operator_notes(tests),
        *([f"device lease waited {waited:.0f} s"] if waited >= NOTICEABLE_WAIT_S else ()),
        *([HOST] if case.facts.engine == "host" else ()),
        *case.facts.notes,
    )


def _shard_notes(case: Case) -> list[str]:
    """Return the note on a suite that was shared: the time of each shard."""
    if case.pytest_stage.shards == 1:
        return []
    times = " + ".join(f"{end.seconds:.0f}" for end in case.shards.values())
    return [f"{case.pytest_stage.shards} shards" + (f" ({times} s)" if times else "")]


def _simulated_notes(case: Case) -> list[str]:
    if not case.compiled_only or case.tests is None:
        return [COMPILED_ONLY if case.compiled_only else SIMULATED] if case.simulated else []
    skipped = [t for t in case.tests.tests if t.operator and t.operator.reason == NO_DEVICE]
    what, _, rest = COMPILED_ONLY.partition(";")
    return [f"{what}, {counted(len(skipped), 'test')} skipped;{rest}"]


def tool_notes(environment: Mapping[str, object]) -> list[str]:
    """Return the note on the tools of the host engine, which are those of a machine, not an image.

    For example ``Python 3.12.3, torch 2.11.0+cu130, g++ (Ubuntu 13.3.0-6ubuntu2) 13.3.0``.
    """
    match environment.get("engine"):
        case {"name": "host"}:
            named = {"python": "Python ", "torch": "torch ", "compiler": ""}
            found = {name: environment.get(name) for name in named}
            tools = [named[name] + it for name, it in found.items() if isinstance(it, str)]
            return [", ".join(tools)] if tools else []
        case _:
            return []


def cache_notes(environment: Mapping[str, object]) -> list[str]:
    """Return the note on the compiler cache; empty without a cache or compilations."""
    match environment.get("compiler_cache"):
        case {"state": "cold"}:
            return ["cold compiler cache"]
        case {"state": "warm", "hit_rate": float(rate)}:
            return [f"warm compiler cache ({100 * rate:.0f} % hits)"]
        case _:
            return []


def source_notes(environment: Mapping[str, object], stage: StagePlan) -> list[str]:
    """Return the notes on modules in which the sources, which were tested, differ."""
    if not imports_current_folder(stage):
        return []
    remedy = "use pytest --import-mode=importlib"
    notes = []
    if names := _modules(environment.get("uncompiled")):
        notes.append(
            f"not tested: compiled {join_names(names)}: python -m pytest imports the sources, which"
            f" lack it; {remedy}"
        )
    if names := _modules(environment.get("unpackaged")):
        notes.append(
            f"the sources were tested, not what was installed, which lacks {join_names(names)}:"
            f" python -m pytest imports the sources; {remedy}"
        )
    return notes


def requirement_notes(environment: Mapping[str, object], failed: Iterable[StagePlan]) -> list[str]:
    """Return the note on packages that a build without isolation did not find."""
    unmet = environment.get("unmet")
    names = [it for it in unmet if isinstance(it, str)] if isinstance(unmet, list) else []
    stages = [it.name for it in failed if any(NO_ISOLATION in word for word in it.command)]
    if not names or not stages:
        return []
    shown = join_names([" ".join(name.split()) for name in names])
    return [
        f"stage {stages[0]} builds without isolation, and the environment lacks {shown} of"
        " build-system.requires: add to the file of `requirements:` what is missing, or leave out"
        f" {NO_ISOLATION}"
    ]


def _modules(found: object) -> list[str]:
    """Return the names of modules in what the code under test may have written."""
    names = found if isinstance(found, list) else []
    return [it for it in names if isinstance(it, str) and MODULE.fullmatch(it)]


def imports_current_folder(stage: StagePlan) -> bool:
    """Return whether Python searches the current folder first, as ``python -m pytest`` does."""
    command = stage.command
    is_python = Path(command[0]).name.startswith("python")
    if not is_python or not is_pytest(command) or stage.environment.get("PYTHONSAFEPATH"):
        return False
    options = command[1 : command.index("-m")]
    return not any(re.match(r"-[a-zA-Z]*[IP]", option) for option in options)


def _verdict_notes(case: Case, verdict: Verdict) -> list[str]:
    if case.facts.interrupted:
        return ["interrupted"]
    if failed := case.record.first(LeaseFailed) or case.record.first(NetworkRemained):
        return [failed.reason]
    notes = [*case.placement_errors] or _product_notes(case, verdict)
    if verdict.harness is Harness.EXIT_AFTER_SUMMARY:
        who = "the agent" if case.record.run_finished is None else "outer wrapper"
        notes.append(f"{who} returned {code_after_summary(case)} after the pytest summary")
    elif verdict.harness is Harness.CRASHED:
        notes.append(_crash_note(case))
    elif verdict.harness is not Harness.CLEAN:
        notes.append(_HARNESS[verdict.harness])
    return notes


def _crash_note(case: Case) -> str:
    """Return the note on a process that ended early, with its tests if known."""
    victims = (case.tests.crashed or case.tests.running) if case.tests else ()
    if victims:
        return f"process crashed in {join_names(victims)}"
    end = case.pytest_end
    if end is None or end.signal is not None or case.summary is not None:
        return "process crashed"
    known = case.shows_pytest
    what = "pytest printed no closing summary" if known else "nothing shows that pytest ran"
    return f"{what} (exit code {end.exit_code})"


def _product_notes(case: Case, verdict: Verdict) -> list[str]:
    """Return the notes on the product's verdict; a broken contract has its own notes."""
    if verdict.product is Product.PASSED:
        if case.summary is None:  # the note on the harness explains it
            return []
        if case.compiled_only:
            return ["all tests that run without a device passed"]
        return [SELECTED_SUITE if case.selected else FULL_SUITE]
    failed = [end.stage for end in case.record.finished_stages.values() if end.failed]
    if any(stage.name in failed for stage in case.commands):
        return [f"stage {failed[0]} failed"]
    if case.tests is None or verdict.product is not Product.FAILED:
        return [verdict.evidence[0].text]
    failures, errors = map(case.tests.count, (Outcome.FAILED, Outcome.ERROR))
    parts = [f"{counted(failures, 'test')} failed"] if failures else []
    if subtests := case.tests.failed_subtests:  # pytest's summary counts them beside their tests
        parts = [f"{it} with {counted(subtests, 'failed subtest')}" for it in parts]
    parts += [counted(errors, "error")] if errors else []
    if parts:
        return [", ".join(parts), *(it.text for it in besides_failures(case))]
    if exit_status(case):
        return [verdict.evidence[0].text]
    return [] if case.session_ended else ["the suite did not finish"]


def _contract_notes(case: Case, verdict: Verdict) -> list[str]:
    if case.contract is None or case.tests is None:
        return []
    if case.contract.suite is None:
        update = _contract_command(case, verdict)
        how = f"; write it with {update}" if update else ""
        return [f"no contract for {case.platform} yet{how}"]
    if case.changes is None:
        return []
    found = []
    for kind in ChangeKind:
        if kind is not ChangeKind.NEWLY_FAILING and (changes := case.changes.of(kind)):
            # The count and, for changes that break the contract, the largest group.
            group = f": {group_lines(changes, 1)[0]}" if kind in BREACHES else ""
            found.append(case.changes.headline(kind) + group)
    if not found:
        return []
    if case.contract.torch and case.torch and case.has_another_torch:
        found.append(f"it was made with torch {case.contract.torch}, this run has {case.torch}")
    update = _contract_command(case, verdict)
    return [f"contract: {'; '.join([*found, *([f'update with: {update}'] if update else ())])}"]


def _contract_command(case: Case, verdict: Verdict) -> str | None:
    """Return the command that makes this run the contract; ``None`` if it would refuse the run."""
    if case.contract is None or case.tests is None:
        return None
    config = case.contract.config
    try:
        check_recordable(
            case.tests,
            platform=case.platform,
            product=verdict.product,
            simulated=case.simulated,
            selected=case.selected or (case.selection and case.selection.asked),
            run="the run",
            config=config,
        )
    except UsageError:
        return None
    return command("contract", case.platform, *(("--config", config) if config else ()))


def _executed_notes(counts: Sequence[OverloadCount]) -> list[str]:
    """``overloads executed: 1,330 of 1,440``, by slot if there are several."""
    executed: Counter[int] = Counter()
    active: Counter[int] = Counter()
    for count in counts:
        # Tests that ran on another device or slot are not counted.
        executed[count.slot] += min(count.executed, count.active)
        active[count.slot] += count.active
    shares = [
        f"{executed[slot]:,} of {number:,}" + (f" on slot {slot}" if len(active) > 1 else "")
        for slot, number in active.most_common()
        if number
    ]
    return [f"overloads executed: {', '.join(shares)}"] if shares else []


def _kernel_notes(counts: Sequence[OverloadCount]) -> Iterator[str]:
    """``overloads passed: 22 by own kernels, 739 composite, 519 by the CPU fallback``."""
    passed: Counter[str] = Counter()
    for count in counts:
        passed.update(count.kernels)
    if passed.total():
        own, composite, fallback = (passed[kernel] for kernel in KERNELS)
        yield (
            f"overloads passed: {own:,} by own kernels, {composite:,} composite,"
            f" {fallback:,} by the CPU fallback"
        )


def _operator_notes(tests: Sequence[TestOutcome]) -> Iterator[str]:
    """Yield notes on records of operator tests: processor, quarantine, comparison with the CPU."""
    lacking = (test.operator for test in tests if test.skip_reason == INSTRUCTION_SET)
    if needs := [record.needs for record in lacking if record]:
        what = "; ".join(dict.fromkeys(need for need in needs if need))
        yield f"{counted(len(needs), 'test')} skipped, the processor lacks {what}"
    # Quarantined tests that still fail, and those that pass.
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
    records = [test.operator for test in tests if test.operator]
    differing = {it.overload for it in records if (it.against_cpu or "").startswith("differs")}
    if differing:
        count = counted(len(differing), "overload")
        yield f"results differ from the CPU: {count}: {join_names(sorted(differing))}"


# Reruns


def rerun_notes(reruns: Sequence[Rerun], failed: Iterable[str], record: RunRecord) -> list[str]:
    """Return the notes on the reruns of the ``failed`` tests, one per kind of result.

    For example ``3 failed tests passed in 5 of 6 reruns: flaky``.
    """
    ended = record.first(RerunsEnded)
    if not record.reruns and ended is None:
        return []
    attempts: dict[str, list[bool]] = {node_id: [] for node_id in failed}
    for rerun in reruns:
        if rerun.outcome.good or rerun.outcome.bad:
            attempts[rerun.node_id].append(rerun.outcome.good)
    # 0: all reruns failed, 1: some passed, 2: all passed, 3: no result.
    groups: dict[int, list[list[bool]]] = defaultdict(list)
    for passed in attempts.values():
        groups[any(passed) + all(passed) if passed else 3].append(passed)
    notes = [_rerun_note(tests) for _, tests in sorted(groups.items())]
    if ended is not None:
        notes.append(f"no {'more ' if record.reruns else ''}reruns: {ended.reason}")
    return notes


def _rerun_note(tests: Sequence[Sequence[bool]]) -> str:
    """Return the note on tests with the same kind of result; each is a list of passed or not."""
    which = counted(len(tests), "failed test")
    reruns, passed = sum(map(len, tests)), sum(map(sum, tests))
    if not reruns:
        return f"{which} without a result in any rerun"
    if not passed:
        return f"{which} failed again in all {counted(reruns, 'rerun')}"
    share, ending = f"{passed:,} of", "flaky"
    if passed == reruns:  # a rerun does not run the tests before it
        share, ending = "all", "flaky, or dependent on the tests before"
    return f"{which} passed in {share} {counted(reruns, 'rerun')}: {ending}"
