"""After a run: set the devices of this machine aside that fail where their siblings pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.bad_devices import PROCESS, DeviceUse, find_bad_devices
from ci.engines.device_marks import ends_of_marks, has_lease_file, set_aside
from ci.errors import CiError
from ci.facts.failures import DIED, ENDED_IN, ENDED_USUALLY
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.protocol.pytest_status import USUAL
from ci.store.folder import open_existing_store
from ci.util.invocation import command
from ci.util.terminal import complain
from ci.util.text import os_reason

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.rows import RunHead
    from ci.store.store import Store

MOST_RUNS = 60  # newest ones of a project that are read; each takes some milliseconds
SET_ASIDE_S = 7 * 24 * 3600.0  # then it is tried again: its driver may have been updated


def set_bad_devices_aside(results: Path, project: str, plans: Sequence[RunPlan]) -> None:
    """Judge the devices of platforms that ran, and mark the bad ones where this machine has them.

    A failure to do so is reported, and never changes the outcome of the run.
    """
    for plan in plans:
        if plan.devices is None:
            continue
        try:
            with open_existing_store(results) as store:
                uses = read_uses(store, project, plan.platform, Path(plan.devices.folder))
            for bad in find_bad_devices(uses):
                _mark(Path(plan.devices.folder), bad.uuid, bad.reason)
        except CiError as error:
            complain(f"the devices of {plan.platform} were not judged: {error}")
        except OSError as error:
            complain(f"the devices of {plan.platform} cannot be set aside: {os_reason(error)}")


def _mark(folder: Path, uuid: str, reason: str) -> None:
    if has_lease_file(folder, uuid):  # else it belongs to another machine
        mark = set_aside(folder, uuid, reason, SET_ASIDE_S)
        clear = command("doctor", "--clear-device", uuid)
        complain(f"device {uuid} {mark}. To use it again: {clear}")


def read_uses(store: Store, project: str, platform: str, folder: Path) -> list[DeviceUse]:
    """Read what the newest runs of a platform show of its devices."""
    heads = {
        head.run_id: head
        for head in store.heads(project=project, last=MOST_RUNS)
        if platform in head.begun and head.commit and not head.dirty
    }
    runs = [run for run_id in heads if (run := store.load_or_skip(run_id))]
    rows = {run.run_id: run.platform(platform) for run in runs}
    rows = {run_id: row for run_id, row in rows.items() if _records(row)}
    if all(row.verdict.harness not in DIED and not row.failures for row in rows.values()):
        return []
    subjects = {it.test for row in rows.values() for it in row.failures if it.test}
    outcomes = store.outcomes_of_tests(subjects, rows, platform)
    uses: list[DeviceUse] = []
    for run_id, row in rows.items():
        states = outcomes[run_id].states if run_id in outcomes else {}
        passed = {name for name, state in states.items() if state.outcome.good}
        failed = {it.test for it in row.failures if it.test}
        if failed:  # what passes when it is repeated is flaky
            failed -= {it.node_id for it in store.reruns(run_id, platform) if it.outcome.good}
        uses += uses_of_run(heads[run_id], row, failed, passed - failed)
    until = ends_of_marks(folder, {uuid for use in uses for uuid in use.devices})
    return [_forget(use, heads[use.run_id], until) for use in uses]


def uses_of_run(
    head: RunHead, row: PlatformResult, failed: AbstractSet[str], passed: AbstractSet[str]
) -> Iterator[DeviceUse]:
    """Yield what a run shows of its devices; of shards, only what a single one that died does.

    Which shard ran a test is not recorded. But a test in which a process ended is of that one.
    """
    records = _records(row)
    uuids = [str(it.get("uuid")) for it in records]
    kind = ", ".join(sorted({f"{it.get('name')} {it.get('driver')}" for it in records}))
    harness = row.verdict.harness
    use = DeviceUse(
        run_id=head.run_id,
        commit=head.commit or "",
        kind=kind,
        devices=frozenset(),
        failed=failed,
        passed=passed,
    )
    if not row.shards:
        ended = {PROCESS} if harness in DIED else set()
        fine = {PROCESS} if harness in ENDED_USUALLY else set()
        yield replace(use, devices={*uuids}, failed=failed | ended, passed=passed | fine)
        return
    died = [place for place, it in enumerate(row.shards) if it.exit_code not in USUAL]
    each = len(uuids) // len(row.shards)
    if harness in DIED and len(died) == 1 and each:
        own = uuids[-each * len(row.shards) :][each * died[0] : each * (died[0] + 1)]
        ended_in = frozenset(test for test in failed if _has_ended_in(row, test))
        yield replace(use, devices={*own}, failed=ended_in, passed=frozenset())
        yield replace(use, failed=failed - ended_in)
    else:
        yield use


def _has_ended_in(row: PlatformResult, test: str) -> bool:
    return any(it.test == test and (it.message or "").startswith(ENDED_IN) for it in row.failures)


def _records(row: PlatformResult) -> list[Mapping[str, object]]:
    records = row.environment.get("devices")
    return [it for it in records if isinstance(it, dict)] if isinstance(records, list) else []


def _forget(use: DeviceUse, head: RunHead, until: Mapping[str, float]) -> DeviceUse:
    """Drop the failures of a run that began before a device could be used again."""
    began = head.started_at.timestamp()
    is_old = any(began < until.get(uuid, 0.0) for uuid in use.devices)
    return replace(use, failed=frozenset()) if is_old else use
