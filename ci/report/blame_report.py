"""The report of a blame: each failing test, whose fault it is, and the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.blame import BlamedTest, CellRun, Fault, Quadrants, newly_skipped
from ci.report.document import Document, Heading, Items, Report, Table
from ci.util.text import commit_name, counted, join_names, shorten

SCHEMA_VERSION = 1
SHOWN = 30  # tests, one screen; JSON has all of them
LONGEST_SHOWN = 120  # characters of a message in the table
MEANINGS: Mapping[Fault, str] = {
    Fault.UPSTREAM: "fails in the new environment, whatever the library",
    Fault.LIBRARY: "fails with the new library, whatever the environment",
    Fault.TOGETHER: "fails only with the new library in the new environment",
    Fault.EACH: "either change is enough",
    Fault.BEFORE: "fails also with neither of the changes",
    Fault.ENVIRONMENT: "not reproducible, or it follows the machine",
    Fault.UNDECIDED: "a cell that decides it says nothing",
}
HEADINGS: Mapping[str, str] = {
    "old": "Both old",
    "new_library": "New library",
    "new_environment": "New environment",
    "new": "Both new",
}


@dataclass(frozen=True, kw_only=True)
class BlameReport(Report):
    """The failing tests, with the runs of the four cells."""

    platform: str
    commits: tuple[str, str]
    """Of the old and the new library."""
    environments: tuple[str, str]
    """The old and the new one, as the user named them."""
    tests: Sequence[BlamedTest]
    cells: Quadrants[Sequence[CellRun]]
    """Empty where nothing had to be run."""
    changes: Sequence[str]
    """How the recorded environments differ."""

    @property
    def counts(self) -> Mapping[Fault, int]:
        """The number of tests by fault, in the order of ``MEANINGS``."""
        found = Counter(it.fault for it in self.tests)
        return {fault: found[fault] for fault in MEANINGS if found[fault]}

    def document(self, *, page: bool) -> Document:
        parts = [f"{count:,} {fault}" for fault, count in self.counts.items()]
        title = f"{self.platform}: {counted(len(self.tests), 'failure')}: {', '.join(parts)}"
        if not self.tests:
            title = f"{self.platform}: nothing fails with the new library in the new environment"
        yield [Heading(3 if page else 1, title), Items([*self._lines()], indent="  ")]
        if self.tests:
            headings = ("Test", "Fault", *HEADINGS.values(), "Message")
            yield [Table(headings, [*self._rows()], below="Message")]

    def _lines(self) -> Iterator[str]:
        old, new = map(commit_name, self.commits)
        yield f"library: {old} -> {new}; environment: {' -> '.join(self.environments)}"
        yield from self.changes
        if self.cells.new_library and not self.changes:
            # As of torch==2.13.0 and torch==2.13.0+cpu, for which pip may install the same.
            yield "no difference between the environments was recorded"
        for fault in self.counts:
            yield f"{fault}: {MEANINGS[fault]}"
        for name, runs in self.cells.all.items():
            if runs:
                yield f"{HEADINGS[name].lower()}: {join_names([it.run_id for it in runs])}"
        if tests := newly_skipped(self.cells):
            verb = "is" if len(tests) == 1 else "are"
            passed = f"{counted(len(tests), 'test')} that passed without the changes {verb} skipped"
            yield f"{passed} with both, such as {tests[0]}"
        if len(self.tests) > SHOWN:
            yield f"{len(self.tests) - SHOWN:,} more failures: --format json lists them"

    def _rows(self) -> Iterator[Sequence[str]]:
        for it in self.tests[:SHOWN]:
            message = shorten(it.message or "", LONGEST_SHOWN)
            yield (it.test, it.fault, *it.outcomes.all.values(), message)

    def data(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "platform": self.platform,
            "commits": {"old": self.commits[0], "new": self.commits[1]},
            "environments": {"old": self.environments[0], "new": self.environments[1]},
            "environment_changes": [*self.changes],
            "counts": dict(self.counts),
            "runs": {name: [it.run_id for it in runs] for name, runs in self.cells.all.items()},
            "newly_skipped": newly_skipped(self.cells),
            "tests": [
                {
                    "test": it.test,
                    "fault": it.fault,
                    "outcomes": dict(it.outcomes.all),
                    "message": it.message,
                }
                for it in self.tests
            ],
        }
