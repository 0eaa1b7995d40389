"""The times of a comparison in words and in rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ci.analysis.cause import Explanation
from ci.analysis.changes import POLICY
from ci.analysis.comparison import Side
from ci.analysis.times import Judgement, MeasureChange, NoTimes, Times
from ci.facts import measures as quantities
from ci.facts.measures import LABELS, amount, growth, percent, stage_and_quantity
from ci.report.changes import certainty, run_name, standing
from ci.report.table import MISSING
from ci.util.invocation import command
from ci.util.text import SHORT, counted


class TimeRow(NamedTuple):
    """One measure."""

    stage: str
    quantity: str
    base: str
    head: str
    change: str
    judgement: str


TIME_HEADINGS = TimeRow("Stage", "Quantity", "base", "head", "change", "judgement")


def time_rows(changes: Iterable[MeasureChange]) -> list[TimeRow]:
    return [_row(change) for change in changes]


def _row(change: MeasureChange) -> TimeRow:
    stage, quantity = stage_and_quantity(change.measure)
    return TimeRow(
        stage=stage,
        quantity=LABELS[quantity],
        base=amount(change.before, quantity),
        head=amount(change.after, quantity),
        change=growth(change.before, change.after, quantity) if change.delta else MISSING,
        judgement=_judgement(change),
    )


def _judgement(change: MeasureChange) -> str:
    if change.judgement is Judgement.WITHIN_NOISE and change.detectable is not None:
        return f"{change.judgement} (a change of {percent(change.detectable)} would be seen)"
    return change.judgement.value


def headline(change: MeasureChange) -> str:
    """``compile +38 s (+21 %)``."""
    return quantities.headline(change.measure, change.before, change.after)


def news(times: Times, explanations: Sequence[Explanation]) -> Iterator[tuple[MeasureChange, str]]:
    """What is to be known of the times, the worst first, each in a sentence."""
    known = {explanation.measure: explanation for explanation in explanations}
    order = list(Judgement)
    told = [change for change in times.changes if change.measure in known or not change.steps]
    for change in sorted(told, key=lambda change: order.index(change.judgement)):
        if change.judgement.is_news:
            yield change, _sentence(change, known.get(change.measure))


def _sentence(change: MeasureChange, explanation: Explanation | None) -> str:
    text = explanation.text if explanation else headline(change)
    return f"{change.judgement}: {text}{''.join(_evidence(change))}"


def _evidence(change: MeasureChange) -> Iterator[str]:
    """Where it happened, and how sure that is."""
    if not change.steps:
        return
    first, last = change.steps[0], change.steps[-1]
    yield f"; after {run_name(first.before_run)}, with {run_name(last.run)}"
    if first is last:
        yield f"; {certainty(first.point)}"
    if change.judgement is Judgement.SUSPECTED:
        yield f"; seen in {counted(last.runs_since, 'run')}"
    if note := standing(last):
        yield f"; {note}"


def advice(platform: str, times: Times) -> Iterator[str]:
    """What is not known yet, and what would tell."""
    steps = [step for change in times.of(Judgement.SUSPECTED) for step in change.steps]
    young = [step.runs_since for step in steps if not step.point.confirmed]
    if not young:
        return
    commit = times.head.commit
    checkout = f"git checkout {commit[:SHORT]} && " if commit and not times.head.dirty else ""
    once = "was seen once, which cannot be told from a spike"
    doubt = once if min(young) == 1 else "may still be chance"
    sure = f"{POLICY.confirm} runs make sure, one more:"
    yield f"what is suspected {doubt}; {sure} {checkout}{command('run', platform)}"


def environment(times: Times | NoTimes, base: Side) -> Iterator[str]:
    """The key, or why no times are compared."""
    if isinstance(times, Times):
        yield f"environment: {times.key}"
        if times.base.run_id != base.run_id:
            run = times.base.run_id
            yield f"times of base: run {run}, the newest of BASE in this environment"
    elif times.key is not None:
        yield "times are not compared, the environment is another one:"
        yield from (f"  {reason}" for reason in times.reasons)
    else:
        yield f"times are not compared: {'; '.join(times.reasons)}"
