"""Runs of commits of a line for a question: which is the first bad one, or is an alarm true?

A file keeps which runs were made for it.

The values are those of the store, so a search that was interrupted goes on where it was, and a
second one uses the runs of the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ci.analysis.bisection import Bisection, likelihood_of_outcomes, likelihood_of_times
from ci.errors import ConfigError, InfrastructureError, UsageError
from ci.facts.failures import DIED
from ci.facts.measures import (
    CONDITIONS,
    TOTAL,
    Quantity,
    is_of,
    measure_key,
    measure_name,
    measures_of,
    stage_and_quantity,
)
from ci.facts.verdict import is_cut
from ci.model.outcomes import Outcome
from ci.model.results import Direction, RunResult
from ci.plan.planning import RunOptions
from ci.run.commit_runs import Checkout
from ci.store.folder import open_store
from ci.store.rows import RunMeasures
from ci.store.store import Store
from ci.util.files import write_atomically
from ci.util.terminal import complain
from ci.util.text import commit_name, join_names, near_match

BISECT = "bisect"
MOST_NAMES = 5  # of measures in a message
MOST_COST = 100.0  # of the usual one: what should be high may be 0


class Question(BaseModel):
    """What to measure, and in which runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str = BISECT
    """The command that asks."""
    project: str
    platform: str
    good: str
    bad: str
    stage: str | None = None
    test: str | None = None
    """One of the two: a stage that got slower, or a test that fails."""
    measure: str | None = None
    """The measure of the stage; ``None``: that with ``text``, or seconds."""
    text: str | None = None
    """A part of the name of the measure, such as that of a benchmark."""
    warm: bool = False
    only_own_runs: bool = False
    """Whether runs that were stored before are no evidence."""
    options: RunOptions

    @property
    def run_options(self) -> RunOptions:
        """The options of each run, which ends with the stage in question."""
        last = None if self.stage == TOTAL else self.stage
        return self.options.model_copy(update={"last_stage": last, "asked_by": self.command})

    @property
    def name(self) -> str:
        """The name of the search, of its file in the results, and of its folder of commits."""
        digest = hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]
        return f"{self.command}-{self.platform}-{self.good[:8]}-{self.bad[:8]}-{digest}"


class SearchRecord(BaseModel):
    """The file of a search."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    question: Question
    runs: dict[str, str] = {}
    """The commits of the runs that this search made, by run id."""
    warming: dict[str, str] = {}
    """With ``warm``: the runs that only filled the compiler cache, by commit."""
    skipped: dict[str, str] = {}
    """The reasons why commits cannot be judged."""
    measure: str | None = None
    """The measure of the stage, once a run has it."""


Values = Mapping[str, Mapping[str, float]]  # by commit and run id


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search in progress."""

    question: Question
    commits: Sequence[str]
    """As in ``Bisection``."""
    results: Path

    @property
    def file(self) -> Path:
        return self.results / f"{self.question.name}.json"

    @cached_property
    def record(self) -> SearchRecord:
        try:
            return SearchRecord.model_validate_json(self.file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return SearchRecord(question=self.question)
        except (ValidationError, UnicodeDecodeError) as error:
            message = f"{self.file}: expected the progress of a search: {error}"
            remedy = f"Move it away to search again: mv {self.file} {self.file}.old"
            raise UsageError(message, remedy=remedy) from None

    def bisection(self, values: Values) -> Bisection:
        costs = self._costs(values)
        return Bisection(
            commits=self.commits,
            values={commit: [*map(costs, runs.values())] for commit, runs in values.items()},
            skipped=self.record.skipped,
            log_likelihood=likelihood_of_outcomes if self.question.test else likelihood_of_times,
        )

    def _costs(self, values: Values) -> Callable[[float], float]:
        """How to make values comparable as seconds are: about 1, and higher is worse.

        Benchmarks have any unit: a time of 300 ns is below the resolution of seconds.
        """
        measure = self.measure
        if measure is None or stage_and_quantity(measure)[1].is_time:
            return float
        known = [it for runs in values.values() for it in runs.values() if it > 0]
        usual = median(known) if known else 1.0
        least = usual / MOST_COST
        if stage_and_quantity(measure)[1].direction is Direction.HIGHER:
            return lambda value: usual / max(value, least)
        return lambda value: value / usual

    @property
    def measure(self) -> str | None:
        """The measure of the stage; ``None`` for a test, or before any run has the measure."""
        return self.question.measure or self.record.measure

    def go_on(self, checkout: Checkout) -> Values:
        """Run commits until the answer is known, or more runs would not help."""
        return self.run_chosen(checkout, self._next_commit)

    def run_chosen(self, checkout: Checkout, choose: Callable[[Values], str | None]) -> Values:
        """Run the commits that ``choose`` returns for the values so far, until it has no more."""
        values = self.read_values()
        while commit := choose(values):
            if result := self._run(checkout, commit):
                values = self.read_values()
                if result.run_id not in values.get(commit, {}):
                    self._skip(commit, self._no_value(result))
        return values

    def _next_commit(self, values: Values) -> str | None:
        found = self.bisection(values)
        if commit := found.next_commit():
            self._announce(found, commit)
        return commit

    def _announce(self, found: Bisection, commit: str) -> None:
        state = "both ends first"
        if found.ends_differ:
            best = found.answer
            state = f"{best.probability:.0%} for {commit_name(best.first_bad[-1])} so far"
        number = f"{self.commits.index(commit) + 1} of {len(self.commits)}"
        complain(f"{BISECT}: run {commit_name(commit)}, {number}; {state}")

    def _run(self, checkout: Checkout, commit: str) -> RunResult | None:
        """Run a commit; ``None`` if the run has no value to read."""
        asked = self.question
        try:
            result = checkout.run(commit, asked.platform, self.results, asked.run_options)
        except (UsageError, ConfigError) as error:
            self._skip(commit, str(error))
            return None
        row = result.platform(asked.platform)
        verdict = row.verdict
        has_ended = verdict.product.is_final or is_cut(verdict)
        # The commit itself may have caused that a process died: a test that hangs, a build that
        # takes all memory. Such a commit is stepped over; any other failure ends the search.
        if not has_ended and verdict.harness not in DIED:
            message = f"{asked.command}: run {result.run_id} of {commit_name(commit)} has no result"
            message += f": {verdict.reason or verdict.harness}"
            remedy = "Repeat the command when this is solved: it keeps all runs so far."
            raise InfrastructureError(message, remedy=remedy)
        if asked.warm and row.built and row.facts("compiler_cache").get("state") is None:
            message = f"no compilation of run {result.run_id} used a compiler cache"
            if asked.command != BISECT:
                remedy = (
                    "Run it on a machine with one, as the alarm is of builds with a filled one."
                )
                raise InfrastructureError(f"{asked.command}: {message}", remedy=remedy)
            raise UsageError(f"--warm: {message}", remedy="Leave out --warm.")
        if asked.warm and row.built and commit not in self.record.warming:
            self.record.warming[commit] = result.run_id
            self._save()
            return None
        self.record.runs[result.run_id] = commit
        self._save()
        return result

    def _no_value(self, result: RunResult) -> str:
        asked = self.question
        row = result.platform(asked.platform)
        has_ended = row.verdict.product.is_final or is_cut(row.verdict)
        if row.built is False or not has_ended:
            return row.verdict.reason or "it was not built"
        code = next((it.exit_code for it in row.stages if it.name == asked.stage), None)
        if code:
            return f"stage '{asked.stage}' failed with exit code {code}"
        if asked.text:
            own = {measure_name(it) for it in measures_of(row) if is_of(it, asked.stage, None)}
            found = f". It has: {join_names(sorted(own), MOST_NAMES)}" if own else ""
            return f"it has no measure of '{asked.stage}' with '{asked.text}' in its name{found}"
        if asked.stage:
            known = [stage.name for stage in row.stages]
            return f"it has no measure of the stage '{asked.stage}'{near_match(asked.stage, known)}"
        with open_store(self.results) as store:
            names = store.outcomes(result.run_id, asked.platform).names
        if asked.test in names:
            return f"'{asked.test}' was skipped"
        return f"it has no test '{asked.test}'{near_match(asked.test, names)}"

    def _skip(self, commit: str, reason: str) -> None:
        if commit in (self.commits[0], self.commits[-1]):
            end = "--good" if commit == self.commits[0] else "--bad"
            asker = end if self.question.command == BISECT else self.question.command
            message = f"{asker}: {commit_name(commit)} cannot be judged: {reason}"
            raise UsageError(message, remedy="Name a commit that can be built and tested.")
        complain(f"{BISECT}: {commit_name(commit)} is stepped over: {reason}")
        self.record.skipped[commit] = reason
        self._save()

    def _save(self) -> None:
        write_atomically(self.file, self.record.model_dump_json(indent=2) + "\n")

    def read_values(self) -> Values:
        """Read the values of this search's runs, and of others in the same environments.

        With ``warm``, only the own ones: of others, no one knows what was in the compiler cache.
        Those that raised an alarm are no evidence for it, either.
        """
        asked, own = self.question, self.record.runs
        with open_store(self.results) as store:
            on_line = set(self.commits)
            heads = [
                head
                for head in store.heads(project=asked.project)
                if head.commit in on_line and asked.platform in head.platforms and not head.dirty
            ]
            rows = {row.run_id: row for row in store.measured(asked.platform, heads)}
            own_only = asked.warm or asked.only_own_runs
            keys = set() if own_only else {row.key for it, row in rows.items() if it in own}
            usable = {it for it, row in rows.items() if it in own or row.key in keys}
            # Where all tests failed, there is no measure.
            usable |= own.keys() & {head.run_id for head in heads}
            found = self._values_of(store, usable, rows)
        values: dict[str, dict[str, float]] = {}
        for head in heads:
            if head.run_id in found and head.commit:
                values.setdefault(head.commit, {})[head.run_id] = found[head.run_id]
        return values

    def _values_of(
        self, store: Store, run_ids: set[str], rows: Mapping[str, RunMeasures]
    ) -> dict[str, float]:
        asked = self.question
        if asked.test:
            outcomes = store.outcomes_of_tests([asked.test], run_ids, asked.platform)
            states = {run_id: of_run.states.get(asked.test) for run_id, of_run in outcomes.items()}
            return {
                run_id: float(state.outcome.bad)
                for run_id, state in states.items()
                if state and state.outcome is not Outcome.SKIPPED
            }
        measures = {run_id: rows[run_id].values for run_id in run_ids if run_id in rows}
        name = self.measure or self._choose_measure(measures)
        return {run_id: values[name] for run_id, values in measures.items() if name in values}

    def _choose_measure(self, measures: Mapping[str, Mapping[str, float]]) -> str:
        """The measure that is named, else CPU seconds, as a busy machine changes wall seconds more.

        Raises ``UsageError`` if several have the name.
        """
        stage = self.question.stage or ""
        if text := self.question.text:
            self.record.measure = find_measure(measures.values(), stage, text)
            return self.record.measure or ""
        cpu, wall = (measure_key(stage, it) for it in (Quantity.CPU, Quantity.WALL))
        known = {name for values in measures.values() for name in values}
        self.record.measure = next((name for name in (cpu, wall) if name in known), None)
        return self.record.measure or wall


def find_measure(
    measured: Iterable[Mapping[str, float]], stage: str | None, text: str
) -> str | None:
    """The measure of a stage, or of any stage, with this name, else the one with it in its name.

    Raises ``UsageError`` if several have it.
    """
    known = {it for values in measured for it in values} - CONDITIONS
    found = [it for it in known if is_of(it, stage, text) or it == text]
    exact = [it for it in found if text in (it, stage_and_quantity(it)[1].label)]
    if len(exact or found) > 1:
        names = join_names(sorted(map(measure_name, exact or found)), MOST_NAMES)
        message = f"--measure: got '{text}', expected the name of one measure: it is in {names}"
        remedy = "Name one of them in full, and with --stage its stage."
        raise UsageError(message, remedy=remedy)
    return next(iter(exact or found), None)
