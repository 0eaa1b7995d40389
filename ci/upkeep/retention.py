"""Which runs stay in the store, and in the folder of results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from ci.analysis.repository import Repository
from ci.engines.leftovers import Item, ItemKind, Scope
from ci.errors import InfrastructureError
from ci.plan.retention import RetentionConfig
from ci.store.folder import ATTESTATIONS, LOCK_FILE, decision_files, read_decision
from ci.store.rows import RunHead

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


def proven_runs(results: Path) -> dict[str, str]:
    """The runs that decisions and attestations in a folder of results are about, each with why.

    Raises ``InfrastructureError`` for a decision that cannot be read: it may be about any run.
    """
    found = {it.parent.name: "it is attested" for it in results.glob(f"*/{ATTESTATIONS}")}
    for path in decision_files(results):
        try:
            runs = read_decision(path).runs
        except (OSError, ValueError) as error:
            message = f"{path}: got no decision, so it is unknown which runs it needs: {error}"
            remedy = "Correct the file, or move it away. Until then, all runs stay."
            raise InfrastructureError(message, remedy=remedy) from error
        found |= {it.run_id: f"{path.name} is about it" for it in runs}
    return found


def kept_runs(
    heads: Sequence[RunHead], policy: RetentionConfig, tagged: Collection[str], now: datetime
) -> dict[str, str]:
    """The runs that a policy keeps, each with why; ``heads`` are the newest first.

    ``tagged`` are the commits of the tags that match.
    """
    numbers: Counter[tuple[str, str | None]] = Counter()
    found = {}
    for head in heads:
        # A run counts for each of its platforms that has begun.
        places = [(platform, head.branch) for platform in head.begun]
        numbers.update(places)
        if head is heads[0]:
            found[head.run_id] = "the latest run"
        elif now - head.started_at <= timedelta(days=policy.days):
            found[head.run_id] = f"began within {policy.days:g} days"
        elif {head.commit, head.tip} & {*tagged}:
            found[head.run_id] = "its commit has a tag"
        elif any(numbers[it] <= policy.newest for it in places):
            found[head.run_id] = f"one of the newest {policy.newest:,} of a platform and branch"
    return found


def retained_items(
    store: Store, results: Path, source: Path, policy: RetentionConfig, scope: Scope, now: datetime
) -> Iterator[Item]:
    """The runs of a project in the store, each with why it stays or goes.

    Raises ``InfrastructureError`` if it is unknown what has to stay.
    """
    repository = Repository(source)
    if repository.is_shallow:
        message = f"retention: {source} is a shallow clone, which may lack tags: all runs stay"
        raise InfrastructureError(message, remedy="Fetch them: git fetch --unshallow --tags")
    heads = store.heads(project=scope.project)
    kept = kept_runs(heads, policy, repository.tagged(policy.tags), now)
    kept |= _named_runs(store, scope.project, heads) | proven_runs(results)
    for head in heads:
        yield Item(
            kind=ItemKind.STORED_RUN,
            name=head.run_id,
            size_bytes=0,  # a database does not know it
            used=head.started_at,
            needed=scope.needed_by_run(head.run_id) or kept.get(head.run_id),
            useless=f"began more than {policy.days:g} days ago",
            remove=partial(_remove_run, store, results, head.run_id),
        )


def _named_runs(store: Store, project: str, heads: Sequence[RunHead]) -> dict[str, str]:
    """The runs that alarms name, and that acceptances name, maybe by their commit."""
    rises = [rise for alarm in store.alarm_records(project) for rise in alarm.rises]
    alarmed = {run for it in rises for run in (it.before_run_id, it.run_id)}
    accepted = {name for it in store.accepted(project) for name in (it.run, it.commit)} - {None}
    found = {it.run_id: "an alarm names it" for it in heads if it.run_id in alarmed}
    names = ((it.run_id, {it.run_id, it.commit, it.tip}) for it in heads)
    return found | {run_id: "it is accepted" for run_id, known in names if accepted & known}


def _remove_run(store: Store, results: Path, run_id: str) -> None:
    """Remove a run from the store, unless it was resumed, or a decision was made meanwhile."""
    folder = results / run_id
    with ExitStack() as stack:
        if folder.is_dir():  # without one, it cannot be resumed
            try:
                stack.enter_context(FileLock(folder / LOCK_FILE, timeout=0))
            except Timeout:
                raise InfrastructureError("its run has just been resumed") from None
        if why := proven_runs(results).get(run_id):
            raise InfrastructureError(why)
        store.remove(run_id)
