"""The page of a run: results, failures, timelines, environment and artifacts of each platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci.facts.sentences.on_stages import is_pending
from ci.facts.timeline import Timeline, read_timeline, stages_in_order
from ci.model.details import Unit
from ci.model.fields import MOST_FAILURES
from ci.model.outcomes import Outcome
from ci.model.results import Distribution, Failure, PlatformResult, RunResult
from ci.model.verdicts import Product
from ci.report.document import Table
from ci.report.failure_list import command_for
from ci.report.table import (
    STAGE_HEADINGS,
    STAGE_NUMBERS,
    build_text,
    distribution_text,
    explained_words,
    origin,
    results_table,
    stage_rows,
)
from ci.util.invocation import command
from ci.util.text import first_line

if TYPE_CHECKING:
    from ci.store.store import Store

MOST_UNITS = 25  # in the table, the most expensive
MOST_TESTS = 25


@dataclass(frozen=True, kw_only=True)
class ShownFailure:
    """A failed test or stage: the line to read first, all of its message, how to repeat it."""

    name: str
    line: str
    message: str
    command: str


@dataclass(frozen=True, kw_only=True)
class PlatformSection:
    """One platform of a run."""

    result: PlatformResult
    stages: Table
    build: str | None
    distributions: tuple[tuple[str, Distribution], ...]
    """Each with its line of the report."""
    failures: tuple[ShownFailure, ...]
    failed: int
    """Failed tests, those not listed included."""
    shell: str | None
    """The command that opens a shell in the environment of a platform that did not pass."""
    units: tuple[Unit, ...]
    """The most expensive commands of the build."""
    tests: tuple[tuple[str, float], ...]
    """The slowest tests, with their seconds."""
    environment: tuple[tuple[str, str], ...]
    timeline: Timeline

    @property
    def is_pending(self) -> bool:
        """Whether there was no result yet."""
        return is_pending(self.result.verdict)


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """A run with all of its platforms."""

    run: RunResult
    origin: str
    results: Table
    words: Sequence[tuple[str, str]]
    sections: tuple[PlatformSection, ...]
    is_running: bool

    @property
    def data(self) -> dict[str, Any]:
        """The timelines, for the script: lanes and names once, times in milliseconds."""
        return {
            "run": self.run.run_id,
            "platforms": {it.result.platform: _timeline_data(it.timeline) for it in self.sections},
        }


def run_page(store: Store, run: RunResult, results: Path, *, is_running: bool) -> RunPage:
    """``results`` is the folder that may have the files of the run."""
    return RunPage(
        run=run,
        origin=origin(run),
        results=results_table(run.platforms),
        words=explained_words(run.platforms),
        sections=tuple(_section(store, run, it, results) for it in run.platforms),
        is_running=is_running,
    )


def _section(
    store: Store, run: RunResult, result: PlatformResult, results: Path
) -> PlatformSection:
    outcomes = store.outcomes(run.run_id, result.platform)
    build = store.build_details([run.run_id], result.platform).get(run.run_id)
    failures = [*_failures(run, result, outcomes.failures)]
    slowest = sorted(zip(outcomes.seconds, outcomes.names, strict=True), reverse=True)
    folder = _folder(results, run.run_id, result.platform)
    stages = stages_in_order((it.name, it.seconds) for it in result.stages)
    # Of a platform that was not run, there is no environment.
    has_shell = result.verdict.product not in (Product.PASSED, Product.NOT_RUN)
    return PlatformSection(
        result=result,
        stages=Table(STAGE_HEADINGS, stage_rows(result), numbers=STAGE_NUMBERS),
        build=build_text(result.build) if result.build else None,
        distributions=tuple((distribution_text(it), it) for it in result.distributions),
        failures=tuple(failures),
        failed=max(len(failures), len(outcomes.failures)),
        shell=command("shell", run.run_id, result.platform) if has_shell else None,
        units=tuple(build.units[:MOST_UNITS]) if build else (),
        tests=tuple((name, seconds) for seconds, name in slowest[:MOST_TESTS]),
        environment=tuple(_flatten(result.environment)),
        timeline=(folder and read_timeline(folder)) or stages,
    )


def _folder(results: Path, run_id: str, platform: str) -> Path | None:
    """The folder of a platform's files, if it is inside of the folder of results.

    Names in a store that others can write to may lead anywhere.
    """
    folder = (results / run_id / platform).resolve()
    inside = folder.is_relative_to(results.resolve())
    return folder if inside and folder.is_dir() else None


def _failures(
    run: RunResult, result: PlatformResult, messages: Mapping[str, str | None]
) -> Iterator[ShownFailure]:
    """The failures of the result; those of older results are the first in the store."""
    stages = [it.name for it in result.stages if it.in_total]
    stored = [
        Failure(stage=stages[-1] if stages else "", test=name, outcome=Outcome.FAILED, message=None)
        for name in [*messages][:MOST_FAILURES]
    ]
    for failure in result.failures or stored:
        whole = (messages.get(failure.test) if failure.test else None) or ""
        yield ShownFailure(
            name=failure.name,
            line=failure.message or first_line(whole) or "no message",
            message=whole,
            command=command_for(run.run_id, result.platform, failure),
        )


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The environment as ``machine.cores``, ``2``."""
    for name, part in value.items():
        if isinstance(part, dict):
            yield from _flatten(part, f"{prefix}{name}.")
        elif part not in (None, "", []):
            shown = ", ".join(map(str, part)) if isinstance(part, list) else str(part)
            yield f"{prefix}{name}", shown


def _timeline_data(timeline: Timeline) -> dict[str, Any]:
    lanes = [*dict.fromkeys(span.lane for span in timeline.spans)]
    kinds = [*dict.fromkeys(span.kind for span in timeline.spans)]
    names = {name: n for n, name in enumerate(dict.fromkeys(it.name for it in timeline.spans))}
    return {
        "lanes": lanes,
        "kinds": kinds,
        "names": [*names],
        "spans": [
            [
                lanes.index(span.lane),
                kinds.index(span.kind),
                names[span.name],
                round(1000 * span.start),
                round(1000 * (span.end - span.start)),
            ]
            for span in timeline.spans
        ],
        "left_out": timeline.left_out,
    }
