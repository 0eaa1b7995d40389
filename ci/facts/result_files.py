"""The files in a platform's results folder: the first step from files to a table row."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pydantic import JsonValue

from ci.facts.benchmarks import BenchmarkReading, read_benchmarks
from ci.facts.build import Build, read_build
from ci.facts.distributions import kept_files, read_distributions
from ci.facts.events import parse_events
from ci.facts.files import read_log_lines, read_text_file
from ci.facts.pytest_log import parse_log
from ci.facts.pytest_output import PytestOutput, read_output
from ci.facts.record import RunRecord
from ci.facts.shards import merge_outputs
from ci.model.details import Details, Rerun
from ci.model.outcomes import Outcome, PytestLog
from ci.model.plan import GivenDistribution
from ci.model.results import Distribution
from ci.protocol.agent_files import ENGINE_EVENTS, ENVIRONMENT, EVENTS, PYTEST_LOG, files_of
from ci.protocol.distributions import KEPT
from ci.protocol.job import Column, StagePlan
from ci.protocol.stable_names import TestNames
from ci.protocol.stage_kind import StageKind
from ci.util.lines import LONGEST_EVENT, LONGEST_REPORT, lines_of_file, parse_object
from ci.util.text import make_inert, make_json_storable

_RERUN_LOG = re.compile(r"pytest\.rerun-([1-9][0-9]*)\.jsonl", re.ASCII)

# Last lines of an output that evidence quotes: pytest's usage errors have four.
LAST_LINES = 5
LONGEST_LINE = 200  # characters: two lines of a terminal
# Bytes; a real one has 20,000. With those of seven platforms, results.json can still be read.
LARGEST_ENVIRONMENT = 1 << 18
TAIL = 16 * 1024  # bytes that are searched for them; the shown characters take at most 4,000


@dataclass(frozen=True, kw_only=True)
class ResultFiles:
    """A platform's results folder; each file is read once, on first use."""

    folder: Path
    stages: Sequence[StagePlan] = ()
    """Stages of the plan; the logs of those that build are read for facts about the build."""

    @cached_property
    def record(self) -> RunRecord:
        """The agent's record as the engine received it; empty if the agent did not start.

        Results of older versions have only the agent's file.
        """
        received = self.folder / ENGINE_EVENTS
        return _record(received) if received.is_file() else self.agent_file

    @cached_property
    def agent_file(self) -> RunRecord:
        """The agent's own file, which the code under test may have changed."""
        return _record(self.folder / EVENTS)

    @cached_property
    def log(self) -> PytestLog | None:
        """The per-test log; ``None`` if pytest wrote none."""
        path = self.folder / PYTEST_LOG
        if not path.is_file() or not path.stat().st_size:
            return None
        return parse_log(lines_of_file(path, LONGEST_REPORT), self.record.folders)

    @cached_property
    def reruns(self) -> tuple[Rerun, ...]:
        """Reruns of failed tests, as evidence of flaky tests.

        No verdict, count or time of the run depends on them.
        """
        if self.log is None:
            return ()
        failed = frozenset(self.log.node_ids(Outcome.FAILED, Outcome.ERROR))
        paths = {
            int(match[1]): path
            for path in self.folder.glob("pytest.rerun-*")
            if (match := _RERUN_LOG.fullmatch(path.name)) and path.is_file()
        }
        return tuple(
            rerun
            for attempt, path in sorted(paths.items())
            for rerun in self._reruns(attempt, path)
            if rerun.node_id in failed
        )

    def _reruns(self, attempt: int, path: Path) -> Iterator[Rerun]:
        log = parse_log(lines_of_file(path, LONGEST_REPORT), self.record.folders)
        end, rerun = self.record.reruns.get(attempt), partial(Rerun, attempt=attempt)
        for test in log.tests:
            yield rerun(
                node_id=test.node_id, outcome=test.outcome, seconds=test.seconds, reason=test.reason
            )
        if end is not None and end.crashed:
            reported = {test.node_id for test in log.tests}
            for node_id in log.running:
                if node_id not in reported:  # the process did not live to report it
                    reason = f"the process died in it (signal {end.signal})"
                    yield rerun(node_id=node_id, outcome=Outcome.FAILED, seconds=0.0, reason=reason)

    @cached_property
    def build(self) -> Build | None:
        names = [stage.name for stage in self.stages if stage.column is Column.BUILD_INSTALL]
        return read_build(self.folder, stages=names)

    @cached_property
    def benchmarks(self) -> dict[str, BenchmarkReading]:
        """The results of each benchmark stage that did its work, by its name."""
        ends, stable_name = self.record.finished_stages, TestNames(self.record.folders)
        names = [it.name for it in self.stages if it.kind is StageKind.BENCHMARK]
        return {
            name: read_benchmarks(self.folder, name, stable_name)
            for name in names
            if name in ends and not ends[name].failed
        }

    @property
    def details(self) -> Details:
        """Details that the store keeps in addition to the platform's result."""
        return Details(
            tests=self.log.tests if self.log else (),
            reruns=self.reruns,
            build=self.build.details if self.build else None,
        )

    @property
    def environment(self) -> dict[str, JsonValue]:
        """The environment that the agent recorded; empty if its file is missing or invalid."""
        text = read_text_file(self.folder / ENVIRONMENT, LARGEST_ENVIRONMENT)
        try:
            content: dict[str, JsonValue] = (
                make_json_storable(text, parse_object(text)) if text else {}
            )
        except ValueError:
            return {}
        # As in results.json: deep lists of short values take 50 times their size there.
        return content if len(json.dumps(content, indent=2)) <= LARGEST_ENVIRONMENT else {}

    def distributions(self, given: GivenDistribution | None) -> tuple[Distribution, ...]:
        """The wheels and source distributions, of which ``given`` was made elsewhere."""
        return read_distributions(self.folder, self.environment, given)

    @property
    def artifacts(self) -> dict[str, str]:
        """Every file, by name, as a path relative to ``results.json``."""
        files = sorted(path for path in self.folder.glob("*") if path.is_file())
        named = {path.name: path for path in files}
        named |= {f"{KEPT}/{path.name}": path for path in kept_files(self.folder)}
        above = self.folder.parent
        return {name: path.relative_to(above).as_posix() for name, path in named.items()}

    def output(self, stage: StagePlan) -> PytestOutput:
        """Read pytest's output from the log of its stage, or from those of its shards."""
        outputs, stable_name = [], TestNames(self.record.folders)
        for shard, name in enumerate(files_of(stage, f"{stage.name}.log"), 1):
            path, number = self.folder / name, shard if stage.shards > 1 else 0
            found = read_output(read_log_lines(path), self.log, number)
            listed = [it._replace(test=stable_name(it.test)) for it in found.listed]
            outputs.append(replace(found, last_lines=_last_lines(path), listed=listed))
        if stage.shards == 1:
            return outputs[0]
        return merge_outputs(outputs, self.log, self.record.shards(stage.name))


def _record(path: Path) -> RunRecord:
    return parse_events(lines_of_file(path, LONGEST_EVENT)) if path.is_file() else RunRecord()


def _last_lines(output: Path) -> tuple[str, ...]:
    """Return the last lines of a stage's output, without control characters and passwords."""
    if not output.is_file():
        return ()
    with output.open("rb") as file:
        file.seek(max(output.stat().st_size - TAIL, 0))
        text = make_inert(file.read().decode(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return tuple(line[:LONGEST_LINE] for line in lines[-LAST_LINES:])
