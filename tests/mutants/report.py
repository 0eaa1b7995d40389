"""What became of the mutants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.mutants.plan import Mutant

COLUMNS = ("mutant", "where", "change", "caught by", "s")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of one mutant: the tests that failed for it, or why it could not be tried."""

    mutant: Mutant
    caught_by: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0

    @property
    def is_caught(self) -> bool:
        return bool(self.caught_by) and not self.error

    @property
    def said(self) -> str:
        if self.error:
            return f"error: {self.error.partition(chr(10))[0]}"
        if not self.caught_by:
            return "nothing: it survives"
        others = len(self.caught_by) - 1
        return f"{self.caught_by[0].removeprefix('tests/ops/')}" + (
            f" and {others} more" if others else ""
        )


def as_markdown(verdicts: Sequence[Verdict], *, seed: int, torch: str, seconds: float) -> str:
    """The table, and the exact change of every mutant that was not caught."""
    return "\n".join(_lines(verdicts, seed, torch, seconds))


def _lines(verdicts: Sequence[Verdict], seed: int, torch: str, seconds: float) -> Iterator[str]:
    caught = sum(verdict.is_caught for verdict in verdicts)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    yield "# Mutation check"
    yield ""
    yield (
        f"{started}, torch {torch}, seed {seed}: {caught} of {len(verdicts)} mutants caught "
        f"in {seconds:.0f} s."
    )
    yield ""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * (len(COLUMNS) - 1) + "|---:|"
    for verdict in verdicts:
        yield f"| {' | '.join(map(_escape, _cells(verdict)))} |"
    for verdict in verdicts:
        if not verdict.is_caught:
            yield from ("", f"## {verdict.mutant.fault}: {verdict.said}", "")
            yield from ("```diff", verdict.mutant.diff().rstrip("\n"), "```")
            yield from ("", verdict.error) if verdict.error else ()
    yield ""


def _cells(verdict: Verdict) -> tuple[str, ...]:
    mutant = verdict.mutant
    return (
        mutant.fault,
        mutant.site.subject,
        mutant.site.what,
        verdict.said,
        f"{verdict.seconds:.1f}",
    )


def _escape(cell: str) -> str:
    return cell.replace("|", r"\|").replace("\n", " ")


def write_report(text: str, folder: Path) -> Path:
    """Writes ``mutants.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mutants.md"
    path.write_text(text, encoding="utf-8")
    return path
