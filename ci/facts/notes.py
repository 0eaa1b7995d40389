"""The notes of a table row: short texts about the run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ci.errors import UsageError
from ci.facts.case import Case
from ci.facts.difference import group_lines
from ci.facts.distributions import installed_files
from ci.facts.pytest_verdict import besides_failures, exit_status
from ci.facts.record import RunRecord
from ci.facts.recorded_contract import check_recordable
from ci.facts.sentences import on_artifacts, on_rows, on_stages, on_tests
from ci.facts.verdict import BREACHES, code_after_summary, not_provided
from ci.gates.regression import ChangeKind
from ci.model.details import Rerun
from ci.model.outcomes import INSTRUCTION_SET, KERNELS, NO_DEVICE, Outcome, TestOutcome
from ci.model.results import OverloadCount
from ci.model.verdicts import Evidence, Harness, Product, Verdict
from ci.protocol.events import LeaseTaken, RerunsEnded, SourcesRemoved
from ci.protocol.job import StagePlan
from ci.protocol.pytest_status import is_pytest
from ci.util.invocation import command

MODULE = re.compile(r"\w+(\.\w+)*")
NOTICEABLE_WAIT_S = 10.0  # shorter waits do not matter in a suite of minutes


def notes_of(case: Case, verdict: Verdict) -> tuple[Evidence, ...]:
    """Return the notes on a judged run."""
    failed = case.tests.node_ids(Outcome.FAILED, Outcome.ERROR) if case.tests else ()
    tests = case.tests.tests if case.tests else ()
    shards, seconds = case.pytest_stage.shards, [it.seconds for it in case.shards.values()]
    waited = sum(lease.waited_s for lease in case.record.every(LeaseTaken))
    return (
        *_verdict_notes(case, verdict),
        *_selection_notes(case),
        *_distribution_notes(case),
        *([on_rows.shards(shards, seconds)] if shards > 1 else []),
        *rerun_notes(case.reruns, failed, case.record),
        *_simulated_notes(case),
        *_contract_notes(case, verdict),
        # The overloads of a suite that was cut short are only those that it reached.
        *(_executed_notes(case.overloads) if case.session_ended else ()),
        *_kernel_notes(case.overloads),
        *_operator_notes(tests),
        *([on_rows.lease_waited(waited)] if waited >= NOTICEABLE_WAIT_S else ()),
        *([on_rows.host_engine()] if case.facts.engine == "host" else ()),
        *map(on_rows.reported, case.facts.notes),
    )


def _selection_notes(case: Case) -> list[Evidence]:
    if case.selection is not None:
        return [on_rows.selected(case.selection.overloads, case.selection.of)]
    selected = case.plan.selected
    return [on_rows.selection_unrecorded(selected)] if selected and case.tests else []


def _distribution_notes(case: Case) -> list[Evidence]:
    given, wheels = case.plan.given, [it for it in case.distributions if it.is_wheel]
    if case.tests is None:
        return []
    if given is not None:
        if not case.tests_given:
            return [on_artifacts.given_untested(given.path.name)]
        removed = sum(it.files for it in case.record.every(SourcesRemoved))
        return [on_artifacts.given_tested(given.path.name, given.sha256, removed)]
    if wheels and not any(it.installed for it in wheels):
        return [on_artifacts.distribution_untested([it.name for it in wheels])]
    return []


def _simulated_notes(case: Case) -> list[Evidence]:
    if not case.compiled_only:
        return [on_rows.simulated_device()] if case.simulated else []
    if case.tests is None:
        return [on_rows.compiled_only(None)]
    skipped = [t for t in case.tests.tests if t.operator and t.operator.reason == NO_DEVICE]
    return [on_rows.compiled_only(len(skipped))]


def tool_notes(environment: Mapping[str, object]) -> list[Evidence]:
    """Return the note on the tools of the host engine, which are those of a machine, not an image.

    For example ``Python 3.12.3, torch 2.11.0+cu130, g++ (Ubuntu 13.3.0-6ubuntu2) 13.3.0``.
    """
    match environment.get("engine"):
        case {"name": "host"}:
            named = {"python": "Python ", "torch": "torch ", "compiler": ""}
            found = {name: environment.get(name) for name in named}
            versions = [named[name] + it for name, it in found.items() if isinstance(it, str)]
            return [on_rows.tools(versions)] if versions else []
        case _:
            return []


def cache_notes(environment: Mapping[str, object]) -> list[Evidence]:
    """Return the note on the compiler cache; empty without a cache or compilations."""
    match environment.get("compiler_cache"):
        case {"state": "cold"}:
            return [on_rows.cold_cache()]
        case {"state": "warm", "hit_rate": float(rate)}:
            return [on_rows.warm_cache(rate)]
        case _:
            return []


def source_notes(environment: Mapping[str, object], stage: StagePlan) -> list[Evidence]:
    """Return the notes on modules in which the sources, which were tested, differ."""
    if not imports_current_folder(stage):
        return []
    kinds = (("uncompiled", on_rows.compiled_untested), ("unpackaged", on_rows.sources_tested))
    notes = [note(names) for it, note in kinds if (names := _modules(environment.get(it)))]
    shadowed = [
        name for it in installed_files(environment) for name in _modules(it.get("shadowed"))
    ]
    return [*notes, *([on_artifacts.wheel_shadowed(shadowed)] if shadowed else [])]


def requirement_notes(
    environment: Mapping[str, object], failed: Iterable[StagePlan]
) -> list[Evidence]:
    """Return the note on packages that a build without isolation did not find."""
    unmet = environment.get("unmet")
    names = [it for it in unmet if isinstance(it, str)] if isinstance(unmet, list) else []
    stages = [it.name for it in failed if any(on_rows.NO_ISOLATION in word for word in it.command)]
    if not names or not stages:
        return []
    return [on_rows.requirements_missing(stages[0], [" ".join(name.split()) for name in names])]


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


def _verdict_notes(case: Case, verdict: Verdict) -> list[Evidence]:
    if case.facts.interrupted:
        return [on_rows.interrupted()]
    if missing := not_provided(case):
        return [missing]
    notes = [*map(on_tests.misplaced, case.placement_errors)] or _product_notes(case, verdict)
    if verdict.harness is Harness.EXIT_AFTER_SUMMARY:
        is_agents = case.record.run_finished is None
        notes.append(on_rows.wrapper_returned(code_after_summary(case), by_agent=is_agents))
    elif verdict.harness is Harness.CRASHED:
        notes.append(_crash_note(case))
    elif verdict.harness is not Harness.CLEAN:
        notes.append(on_rows.harness_failed(verdict.harness))
    return notes


def _crash_note(case: Case) -> Evidence:
    """Return the note on a process that ended early, with its tests if known."""
    victims = (case.tests.crashed or case.tests.running) if case.tests else ()
    end = case.pytest_end
    if victims or end is None or end.signal is not None or case.output.summary is not None:
        return on_rows.process_crashed(victims)
    return on_rows.no_closing_line(end.exit_code, shows_pytest=case.shows_pytest)


def _product_notes(case: Case, verdict: Verdict) -> list[Evidence]:
    """Return the notes on the product's verdict; a broken contract has its own notes."""
    if verdict.product is Product.PASSED:
        if case.output.summary is None:  # the note on the harness explains it
            return []
        if case.compiled_only:
            return [on_rows.suite_without_device()]
        return [on_rows.selected_suite() if case.plan.selected else on_rows.full_suite()]
    if case.failed_commands:
        return [on_stages.stage_failed(case.failed_commands[0].name)]
    if case.tests is None or verdict.product is not Product.FAILED:
        return [verdict.evidence[0]]
    failures, errors = map(case.tests.count, (Outcome.FAILED, Outcome.ERROR))
    if failures or errors:
        counts = on_rows.failed_counts(failures, case.tests.failed_subtests, errors)
        return [counts, *besides_failures(case)]
    if exit_status(case):
        return [verdict.evidence[0]]
    return [] if case.session_ended else [on_rows.suite_unfinished()]


def _contract_notes(case: Case, verdict: Verdict) -> list[Evidence]:
    contract = case.plan.contract
    if contract is None or case.tests is None:
        return []
    if contract.suite is None:
        return [on_rows.no_contract(case.plan.platform, _contract_command(case, verdict))]
    if case.changes is None:
        return []
    found = []
    for kind in ChangeKind:
        if kind is not ChangeKind.NEWLY_FAILING and (changes := case.changes.of(kind)):
            # The count and, for changes that break the contract, the largest group.
            group = f": {group_lines(changes, 1)[0]}" if kind in BREACHES else ""
            found.append(case.changes.headline(kind) + group)
    explains = found or verdict.product is Product.FAILED
    if explains and contract.torch and case.torch and case.has_another_torch:
        found.append(f"it was made with torch {contract.torch}, this run has {case.torch}")
    return [on_rows.contract_differs(found, _contract_command(case, verdict))] if found else []


def _contract_command(case: Case, verdict: Verdict) -> str | None:
    """Return the command that makes this run the contract; ``None`` if it would refuse the run."""
    if case.plan.contract is None or case.tests is None:
        return None
    config = case.plan.contract.config
    try:
        check_recordable(
            case.tests,
            platform=case.plan.platform,
            product=verdict.product,
            simulated=case.simulated,
            selected=case.plan.selected or (case.selection and case.selection.asked),
            run="the run",
            config=config,
        )
    except UsageError:
        return None
    return command("contract", case.plan.platform, *(("--config", config) if config else ()))


def _executed_notes(counts: Sequence[OverloadCount]) -> list[Evidence]:
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
    return [on_rows.overloads_executed(shares)] if shares else []


def _kernel_notes(counts: Sequence[OverloadCount]) -> list[Evidence]:
    """``overloads passed: 22 by own kernels, 739 composite, 519 by the CPU fallback``."""
    passed: Counter[str] = Counter()
    for count in counts:
        passed.update(count.kernels)
    own, composite, fallback = (passed[kernel] for kernel in KERNELS)
    return [on_rows.overloads_passed(own, composite, fallback)] if passed.total() else []


def _operator_notes(tests: Sequence[TestOutcome]) -> Iterator[Evidence]:
    """Yield notes on records of operator tests: processor, quarantine, comparison with the CPU."""
    lacking = (test.operator for test in tests if test.skip_reason == INSTRUCTION_SET)
    if needs := [record.needs for record in lacking if record]:
        yield on_rows.instructions_missing(len(needs), [*dict.fromkeys(filter(None, needs))])
    # Quarantined tests that still fail, and those that pass.
    held: Counter[str] = Counter()
    stale: Counter[str] = Counter()
    for test in tests:
        if test.quarantine:
            (stale if test.outcome.good else held)[test.quarantine] += 1
    if held:
        yield on_rows.quarantined(held.total(), sorted(held))
    if stale:
        parts = [f"{name} in part" if name in held else name for name in sorted(stale)]
        yield on_rows.quarantine_stale(parts)
    records = [test.operator for test in tests if test.operator]
    if differing := {it.overload for it in records if it.differs_from_cpu}:
        yield on_rows.differs_from_cpu(sorted(differing))


# Reruns


def rerun_notes(
    reruns: Sequence[Rerun], failed: Iterable[str], record: RunRecord
) -> list[Evidence]:
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
    notes = [
        on_rows.reruns(len(tests), sum(map(len, tests)), sum(map(sum, tests)))
        for _, tests in sorted(groups.items())
    ]
    if ended is not None:
        notes.append(on_rows.reruns_ended(ended.reason, after_some=bool(record.reruns)))
    return notes
