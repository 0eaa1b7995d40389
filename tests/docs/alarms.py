"""The page of the body that ``history --check --notify`` sends: an example, and all its keys."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from ci.analysis.alarm_tracking import TrackedAlarm
from ci.analysis.alarms import Alarm, AlarmRow
from ci.analysis.changes import ChangePoint
from ci.analysis.level_changes import LevelChange
from ci.gates.regression import Judgement
from ci.report.alarm_report import LONGEST_NOTIFICATION, notification
from ci.store.rows import AlarmEvent, AlarmRecord, RunMeasures

BODY_KEYS: Mapping[str, str] = {
    "schema_version": "Version of this form.",
    "project": "The project in `ci.yaml`.",
    "branch": "The branch that the runs follow, or `null`.",
    "text": f"The message of the other forms. It is cut after {LONGEST_NOTIFICATION:,} characters.",
    "event": "`new`, `corrected`, `resolved` or `reopened`.",
    "corrects": "For `corrected`: what the last message named, by the keys"
    " `last_run_before`, `first_run_after` and `headline`. Otherwise `null`.",
    "id": "The alarm. It stays the same while more runs move the place of the rise.",
    "state": "`open`, `acknowledged`, `fixed`, `invalid` or `resolved`.",
    "why": "How it was resolved, or why a fixed or invalid one is open again. Otherwise `null`.",
    "statement": "What someone said last with `alarms ID`: `state`, `who`, `note`, `commit` and"
    " `stated_at`, or `null`.",
    "owners": "The owners in `CODEOWNERS` of the files that changed between the two runs.",
    "link": "The address of its issue, or `null`.",
    "kind": "`regression`, or `environment` for a rise with a new compiler or tool, with"
    " `--fail-on environment`.",
    "headline": "The largest rise, and the platforms.",
    "last_run_before": "The last run before all rises; `null` once it is resolved.",
    "first_run_after": "The first run with one of them; `null` once it is resolved.",
    "bisect": "The command that finds the commit, or `null`.",
    "rows": "The rises: one for each platform and environment. Empty once it is resolved.",
}
RUN_KEYS: Mapping[str, str] = {
    "run_id": "Its name.",
    "commit": "Its commit, or `null`.",
    "dirty": "Whether it had uncommitted changes.",
    "started_at": "When it began, in UTC.",
}
ROW_KEYS: Mapping[str, str] = {
    "platform": "The platform.",
    "environment": "The environment that the times were measured in.",
    "cause": "Why the cost rose, or `null`.",
    "change": "The rise.",
    "also": "Other quantities that rose with it, each like `change`.",
}
CHANGE_KEYS: Mapping[str, str] = {
    "measure": "The stage and the quantity. `wall_s` and `cpu_s` are seconds.",
    "before": "The level before, in the unit of `measure`.",
    "after": "The level since.",
    "low": "The 95 % interval of the relative size begins here: 0.17 is +17 %. `null` after 0.",
    "high": "It ends here.",
    "probability": "1 minus a bound of the p-value of the change, over all quantities. It does not"
    " say how likely the sources are the cause.",
    "confirmed": "Whether it is certain: see [Track build cost](../track-build-cost.md).",
    "open": "Whether it is an open regression.",
    "wall_alone": "Whether wall seconds rose without CPU seconds.",
    "gradual_until": "The first run with all of a gradual rise, or `null`: it is a step.",
    "last_run_before": "The last run before this rise.",
    "first_run_after": "The first run with it.",
    "runs_since": "Runs since, with the first one.",
    "accepted": "The reason of its acceptance, or `null`.",
    "undone": "The first run that is as cheap as before, or `null`.",
}
FAILED_RUN_KEYS: Mapping[str, str] = {
    "schema_version": "Version of this form.",
    "project": "The project in `ci.yaml`.",
    "branch": "The branch of the run, or `null`.",
    "text": f"The message of the other forms. It is cut after {LONGEST_NOTIFICATION:,} characters.",
    "kind": "`run`.",
    "headline": "The platforms that did not pass.",
    "run_id": "The name of the run.",
    "commit": "Its commit, or `null`.",
    "dirty": "Whether it had uncommitted changes.",
    "started_at": "When it began, in UTC.",
    "exit_code": "The exit code of `run`.",
    "results": "The host and the folder of the results.",
    "job": "The address of the CI system's job, or `null`.",
    "platforms": "All platforms of the run.",
}
FAILED_PLATFORM_KEYS: Mapping[str, str] = {
    "platform": "The platform.",
    "verdict": "Its verdict, as in [results.json](results.md).",
    "summary": "pytest's closing line, or `null`.",
    "failures": "Its first failures, as in [results.json](results.md).",
}
SECTIONS = {
    "": BODY_KEYS,
    "`last_run_before`, `first_run_after`": RUN_KEYS,
    "`rows`": ROW_KEYS,
    "`rows[].change`": CHANGE_KEYS,
}


def sections() -> Iterable[tuple[str, Mapping[str, str]]]:
    """The title of each table, with its keys; raises ``ValueError`` if it lacks one."""
    body = example()
    [row] = body["rows"]
    shown = (body, body["last_run_before"], row, row["change"])
    for (title, keys), part in zip(SECTIONS.items(), shown, strict=True):
        if [*keys] != [*part]:
            raise ValueError(f"tests/docs/alarms.py: {title or 'body'}: expected {[*part]}")
    return SECTIONS.items()


def example_text() -> str:
    return json.dumps(example(), indent=2, ensure_ascii=False)


def example() -> dict[str, Any]:
    """The body of an alarm."""
    before = _run(19, "397421edb166ad1f6ac3fd0b4eaf5a1e2e4cfc30")
    first = _run(20, "72841dc3968bd1fc5c4dd1ef7a0be0f6bd9bbd6c")
    point = ChangePoint(
        index=14,
        earliest=14,
        latest=14,
        until=14,
        before=83.1,
        after=97.2,
        low=0.167,
        high=0.178,
        probability=0.9998,
        confirmed=True,
    )
    rise = LevelChange(
        measure="install.wall_s", before_run=before, run=first, place=14, point=point, runs_since=10
    )
    row = AlarmRow(
        platform="cpu",
        change=rise,
        environment="cpu; Intel Xeon, 4 cores, 16 GiB; g++ 13.2; …",
        cause="14 s of it in 2 new units of the cpu backend (attention.cc, conv.cc)",
    )
    alarm = Alarm(kind=Judgement.REGRESSION, rows=(row,), before=before, first=first, place=14)
    record = AlarmRecord(alarm_id="4f1d09ab", kind=alarm.kind, rises=())
    tracked = TrackedAlarm(
        record=record, alarm=alarm, state=record.state, owners=("@infini-ops/kernels",)
    )
    return notification(tracked, AlarmEvent.NEW, "json", project="infini-ops", branch="main")


def _run(day: int, commit: str) -> RunMeasures:
    started = datetime(2026, 11, day, 10, 15, tzinfo=UTC)
    return RunMeasures(
        run_id=f"{started:%Y%m%dT%H%M%SZ}-0123abcd-{day - 6:04x}",
        commit=commit,
        dirty=False,
        started_at=started,
        key="",
        values={},
    )
