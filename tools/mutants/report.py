"""The report on the mutants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tools.mutants.plan import Mutant
from tools.mutants.suite import Reproduction

TIME_LIMIT = "the time limit of the suite"
COLUMNS = ("mutant", "where", "change", "caught by", "shown reason", "fails again", "s")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one mutant: the tests that caught it, or the error that stopped the check."""

    mutant: Mutant
    caught_by: tuple[str, ...] = ()
    reproduction: Reproduction | None = None
    """Of the first of these tests that a run shows; ``None``: it shows none."""
    in_suite: bool = True
    """Whether the operator suite caught it, and so a run on a platform shows it."""
    error: str = ""
    seconds: float = 0

    @property
    def is_caught(self) -> bool:
        return bool(self.caught_by) and not self.error

    @property
    def problem(self) -> str | None:
        """Why the check fails; ``None``: it does not."""
        if self.mutant.equivalent:
            return None
        if not self.is_caught:
            return self.summary
        if not self.in_suite:
            return None
        if self.reproduction is None:
            return "none of the failures that a run shows is about it"
        return self.reproduction.problem

    @property
    def summary(self) -> str:
        if self.error:
            return f"error: {self.error.partition(chr(10))[0]}"
        if self.mutant.equivalent:
            return f"equivalent: {self.mutant.equivalent}"
        if not self.caught_by:
            return "nothing: the mutant survives"
        others = len(self.caught_by) - 1
        return f"{self.caught_by[0].removeprefix('tests/ops/')}" + (
            f" and {others} more" if others else ""
        )


def as_markdown(
    verdicts: Sequence[Verdict], *, seed: int, torch: str, seconds: float, cpu_seconds: float
) -> str:
    """Return the table, and the exact change of every mutant that was not caught.

    ``cpu_seconds`` are those of all builds and tests: other work on the machine adds less to them
    than to the seconds.
    """
    caught = sum(verdict.is_caught for verdict in verdicts)
    equivalent = sum(verdict.mutant.equivalent is not None for verdict in verdicts)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    lines = ["# Mutation check", ""]
    lines += [
        f"{started}, torch {torch}, seed {seed}: {caught} of {len(verdicts)} mutants caught, "
        f"{equivalent} equivalent, in {seconds:.0f} s ({cpu_seconds:.0f} CPU-s).",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * (len(COLUMNS) - 1) + "|---:|",
    ]
    for verdict in verdicts:
        site = verdict.mutant.site
        texts: tuple[str, ...]
        texts = (verdict.mutant.fault, site.subject, site.what, verdict.summary)
        if again := verdict.reproduction:
            texts += (again.reason, "yes" if again.fails else "no")
        else:
            texts += ("", "")
        cells = [cell.replace("|", r"\|").replace("\n", " ") for cell in texts]
        lines.append(f"| {' | '.join([*cells, f'{verdict.seconds:.1f}'])} |")
    for verdict in verdicts:
        if verdict.problem:
            lines += ["", f"## {verdict.mutant.fault}: {verdict.problem}", ""]
            lines += ["```diff", verdict.mutant.diff().rstrip("\n"), "```"]
            lines += ["", verdict.error] if verdict.error else []
    return "\n".join([*lines, ""])


def write_report(text: str, folder: Path) -> Path:
    """Writes ``mutants.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mutants.md"
    path.write_text(text, encoding="utf-8")
    return path
