"""The report of a search for the first bad commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ci.analysis.bisection import SURE, Answer
from ci.facts.measures import amount, certain, measure_name, percent, stage_and_quantity
from ci.report.document import Document, Heading, Items, Report, Table
from ci.util.text import SHORT, commit_name, counted, first_line

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class BisectionReport(Report):
    """The answer, its cause, and the commits that were run."""

    platform: str
    stage: str | None
    test: str | None
    measure: str | None
    commits: Sequence[str]
    """Oldest first: the good one, those between, the bad one."""
    subjects: Mapping[str, str]
    values: Mapping[str, Mapping[str, float]]
    """By commit and run."""
    skipped: Mapping[str, str]
    answer: Answer
    cause: str
    comparison: str
    """The command that compares the runs on both sides."""

    def document(self, *, page: bool) -> Document:  # noqa: ARG002 (both are alike)
        first = self.answer.first_bad
        what = f"{self.test} fails"
        if self.measure:
            is_time = stage_and_quantity(self.measure)[1].is_time
            what = (
                f"{self.stage} is slower" if is_time else f"{measure_name(self.measure)} is worse"
            )
        name = commit_name(first[-1]) if len(first) == 1 else f"one of {len(first)} commits"
        title = f"{self.platform}: {what} since {name}, {certain(self.answer.probability)}"
        yield Heading(1, title), Items([*self._lines()], indent="  ")
        yield [Table(("Commit", "Runs", self._heading, "Subject"), [*self._rows()], ("Runs",))]

    @property
    def _heading(self) -> str:
        return "Failed" if self.measure is None else "Median"

    def _lines(self) -> Iterator[str]:
        for commit in self.answer.first_bad:
            reason = self.skipped.get(commit)
            suffix = f" (stepped over: {first_line(reason)})" if reason else ""
            yield f"{commit_name(commit)} {self.subjects.get(commit, '')}{suffix}"
        if self.cause:
            yield f"cause: {self.cause}"
        if not self.answer.is_sure:
            yield f"not sure, which takes {percent(SURE)}: more runs of these commits do not help"
        runs = counted(sum(map(len, self.values.values())), "run")
        stepped_over = f", {len(self.skipped)} stepped over" if self.skipped else ""
        yield f"{runs}; {len(self.values)} of {len(self.commits)} commits measured{stepped_over}"
        yield f"compare both sides: {self.comparison}"

    @property
    def _step(self) -> float:
        """The difference of the levels before and since, which the medians are to show."""
        place = self.commits.index(self.answer.first_bad[-1])
        sides = (self.commits[:place], self.commits[place:])
        good, bad = (
            median(it for commit in side for it in self.values.get(commit, {}).values())
            for side in sides
        )
        return abs(bad - good)

    def _rows(self) -> Iterator[Sequence[str]]:
        for commit in self.commits:
            values = [*self.values.get(commit, {}).values()]
            shown = "stepped over" if commit in self.skipped else ""
            if values and commit not in self.skipped:
                shown = f"{sum(values):.0f}"
                if self.measure is not None:
                    quantity = stage_and_quantity(self.measure)[1]
                    shown = amount(median(values), quantity, step=self._step)
            if shown:
                yield commit[:SHORT], str(len(values)), shown, self.subjects.get(commit, "")

    def data(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "platform": self.platform,
            "stage": self.stage,
            "test": self.test,
            "measure": self.measure,
            "good": self.commits[0],
            "bad": self.commits[-1],
            "first_bad": list(self.answer.first_bad),
            "before": self.answer.before,
            "probability": self.answer.probability,
            "sure": self.answer.is_sure,
            "cause": self.cause,
            "commits": [
                {
                    "commit": commit,
                    "subject": self.subjects.get(commit, ""),
                    "runs": dict(self.values.get(commit, {})),
                    "skipped": self.skipped.get(commit),
                }
                for commit in self.commits
            ],
        }
