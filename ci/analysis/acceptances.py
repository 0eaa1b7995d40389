"""Acceptances of rises: new ones for a rise, and withdrawn ones. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ci.analysis.level_changes import accepted_levels
from ci.analysis.platform_history import PlatformHistory
from ci.errors import UsageError
from ci.facts.acceptance import Acceptance, accept_level
from ci.store.rows import RunMeasures
from ci.util.invocation import ACCEPTED_FILE, command
from ci.util.text import join_names, near_match


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Why a rise is accepted, by whom and until when."""

    reason: str
    who: str
    date: datetime.date
    until: datetime.date | None = None


def accept_rises(found: PlatformHistory, run_id: str, terms: Terms) -> list[Acceptance]:
    """Accept all measures that rose with a run.

    These are all changes of the shift that it belongs to, or that came with its environment.
    """

    def accept(measure: str, run: RunMeasures, level: float) -> Acceptance:
        # Uncommitted changes may be the cause: only the run itself has them. Of a rise between two
        # runs of a commit, the commit is not the cause.
        is_known = run.commit is not None and not run.dirty and run not in later
        place = {"commit": run.commit} if is_known else {"run": run.run_id}
        return accept_level(measure, level, platform=found.platform, **place, **vars(terms))

    later = [it.run for it in found.history.environment_rises if it.rises[0].is_in_one_commit]
    rises = [
        (environment, shift, {change.run.run_id for change in shift.changes if change.is_rise})
        for environment, shift in found.history.shifts
    ]
    # Both may begin with one run; `--measure` chooses the share of executed tests.
    rises.sort(key=lambda it: it[1].headline.is_of_executed_share)
    for environment, shift, run_ids in rises:
        if run_id in run_ids:
            return [accept(*each) for each in accepted_levels(environment, shift)]
    changed = [it for it in found.history.environment_rises if any(r.is_rise for r in it.rises)]
    if rise := next((it for it in changed if it.run.run_id == run_id), None):
        levels = {it.measure: it.point.after for it in rise.rises if it.is_rise}
        return [accept(measure, rise.run, level) for measure, level in levels.items()]
    changes = [change for _, shift, _ in rises for change in shift.changes]
    changes += [rise for it in found.history.environment_rises for rise in it.rises]
    if any(it.accepted and it.run.run_id == run_id for it in changes):
        message = f"accept: the rises of {found.platform} with run '{run_id}' are accepted"
        again = command("withdraw", found.platform, run_id)
        raise UsageError(message, remedy=f"Edit {ACCEPTED_FILE}, or withdraw them first: {again}")
    known = [shift.headline.run.run_id for _, shift, run_ids in rises if run_ids]
    known += [it.run.run_id for it in changed]
    near = near_match(run_id, known, cutoff=0.9)
    message = f"accept: no measure of {found.platform} rose with run '{run_id}'{near}"
    rose = f"Runs with rises that are not accepted: {join_names(known)}."
    raise UsageError(message, remedy=rose if known else "There is no rise to accept.")


def add_acceptances(
    known: Iterable[Acceptance], accepted: Sequence[Acceptance]
) -> list[Acceptance]:
    """Add acceptances; they replace those of the same measures with the same first commit."""
    new = {it.place: it for it in accepted}
    return list(dict.fromkeys([*(new.get(it.place, it) for it in known), *accepted]))


def withdrawn(
    known: Sequence[Acceptance], platform: str, name: str, commit: str | None
) -> list[Acceptance]:
    """The acceptances of a platform that begin with the run or commit ``name``.

    ``commit`` is that of the run ``name``. Raises ``UsageError`` if there are none.
    """
    own = [it for it in known if it.platform == platform]
    found = [it for it in own if it.begins_with(name) or (commit and it.commit == commit)]
    if found:
        return found
    places = list(dict.fromkeys(it.since for it in own))
    message = f"withdraw: no rise of {platform} is accepted since '{name}'"
    message += near_match(name, places)
    accepted = f"Accepted are rises since {join_names(places)}."
    raise UsageError(message, remedy=accepted if places else f"None is accepted on {platform}.")
