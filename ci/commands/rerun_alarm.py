"""``python -m ci rerun-alarm``."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ci.commands.options import (
    LONGEST_NUMBER,
    add_branch,
    add_config,
    add_format,
    add_results,
    add_source,
    config_file,
    platform_name,
)
from ci.commands.reading import reading_store
from ci.commands.tracking import tracked_alarms
from ci.errors import ExitCode, UsageError
from ci.facts.environment_key import ALL_OPERATORS, NONE, CacheState
from ci.model.plan import EngineKind
from ci.model.trust import Trust
from ci.plan.ci_variables import read_ci_job
from ci.plan.planning import RunOptions
from ci.plan.project import load_project
from ci.run.commit_runs import Checkout, temporary_checkout
from ci.run.search import Question, Search, Values
from ci.store.folder import open_store
from ci.util.invocation import command
from ci.util.terminal import complain
from ci.util.text import commit_name, near_match

if TYPE_CHECKING:  # NumPy and the change-point library take 0.2 s
    from ci.analysis.alarms import Alarm
    from ci.analysis.platform_history import PlatformHistory
    from ci.analysis.reruns import RerunPlan
    from ci.report.rerun_report import RerunReport, RerunRow

NAME = "rerun-alarm"
WARM = (CacheState.FEW_HITS, CacheState.MANY_HITS)
UNITS = {"s": 1, "m": 60, "h": 3600}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Run both sides of an alarm of `history` again: the commit before the rise and the first"
        " one with it, in turns, in a folder outside of the sources. Runs end with the stage that"
        " rose, and are as many as its noise needs. Exits with 4 if the rise is confirmed, with 0"
        " if not, and with 3 if these runs cannot decide. If it is interrupted, the same command"
        " continues."
    )
    parser.add_argument("alarm", metavar="ID", help="the alarm, as `history --check` names it")
    parser.add_argument(
        "--budget",
        type=budget,
        metavar="LIMIT",
        help="end after so many runs, as 20, or begin none that would end after a time, as 600s,"
        " 90m or 2h (default: as many as the noise needs)",
    )
    parser.add_argument(
        "--platform",
        type=platform_name,
        metavar="PLATFORM",
        help="only this platform of the alarm (default: all of them)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="only print which runs it takes, and why"
    )
    parser.add_argument("--engine", metavar="ENGINE", help="as of `run` (default: the alarm's)")
    add_branch(parser)
    add_source(parser)
    add_config(parser)
    add_results(parser)
    add_format(parser, "table", "markdown", "json")


def execute(options: argparse.Namespace) -> int:
    """Run both sides, and report whether the rise is there again."""
    from ci.analysis.reruns import RerunOutcome, plan_reruns
    from ci.report.alarm_report import headline
    from ci.report.rerun_report import RerunReport, RerunRow, plan_text

    config = config_file(options)
    project = load_project(config, os.environ)
    source = (options.source or project.source).resolve()
    alarm, histories = _find_alarm(options, project.config.project, source)
    before, since = _sides(alarm, options.alarm)
    if options.platform not in (None, *alarm.platforms):
        hint = near_match(options.platform, alarm.platforms)
        message = f"--platform: got '{options.platform}', expected one of the alarm's{hint}"
        raise UsageError(message, remedy=f"It has: {', '.join(alarm.platforms)}.")
    rows = [
        RerunRow(plan=it, values={}, finding=None)
        for it in plan_reruns(alarm, histories)
        if options.platform in (None, it.platform)
    ]
    report = RerunReport(
        alarm=options.alarm,
        headline=headline(alarm),
        before=before,
        since=since,
        rows=rows,
        is_plan=True,
    )
    if options.dry_run:
        report.show(options.format)
        return ExitCode.PASSED
    limit = options.budget or Budget()
    for row in rows:
        complain(f"{NAME}: {plan_text(row.plan)}")
    if (needed := 2 * sum(row.plan.runs for row in rows)) > limit.runs:
        complain(f"{NAME}: these are {needed} runs; the budget has {limit.runs}")
    done = []
    for row in rows:
        question = _question(project.config.project, report, row.plan, options.engine)
        search = Search(question=question, commits=(before, since), results=options.results)
        with temporary_checkout(source, config, question.name) as checkout:
            done.append(_run_again(search, checkout, row, limit))
    report = replace(report, rows=done, is_plan=False)
    report.show(options.format)
    return {
        RerunOutcome.CONFIRMED: ExitCode.REGRESSION,
        RerunOutcome.NOT_CONFIRMED: ExitCode.PASSED,
        RerunOutcome.UNDECIDED: ExitCode.INFRASTRUCTURE,
    }[report.outcome]


@dataclass(kw_only=True)
class Budget:
    """The runs or the seconds that reruns may take."""

    runs: float = math.inf
    seconds: float = math.inf
    made: int = 0
    _begin: float = field(default_factory=monotonic)
    _run_begin: float | None = None
    _longest_s: float = 0.0

    def begin_run(self) -> bool:
        """Whether there is room for one more run, which begins now; ends the one before."""
        now = monotonic()
        if self._run_begin is not None:
            self._longest_s = max(self._longest_s, now - self._run_begin)
        has_room = self.made < self.runs and now - self._begin + self._longest_s <= self.seconds
        self._run_begin = now if has_room else None
        self.made += has_room
        return has_room


def budget(text: str) -> Budget:
    """An argparse type for a number of runs, or for a time such as ``90m``."""
    found = re.fullmatch(rf"([0-9]{{1,{LONGEST_NUMBER - 1}}})([smh]?)", text, re.ASCII)
    if found is None or not int(found[1]):
        message = f"got '{text}', expected a number of runs, as 20, or a time, as 600s, 90m or 2h"
        raise argparse.ArgumentTypeError(message)
    number = int(found[1])
    return Budget(seconds=number * UNITS[found[2]]) if found[2] else Budget(runs=number)


def _find_alarm(
    options: argparse.Namespace, project: str, source: Path
) -> tuple[Alarm, Sequence[PlatformHistory]]:
    """The open alarm that is named, and the histories with the noise of its series."""
    from ci.analysis.platform_history import find_project, platform_histories, project_line

    with reading_store(options.results) as store:
        find_project(store, None, project)
        along = project_line(store, project, source, options.branch)
        histories = platform_histories(store, along.platforms, along)
        tracked = tracked_alarms(store, histories, along, complete=False)
    alarms = {it.record.alarm_id: it.alarm for it in tracked if it.alarm}
    if alarm := alarms.get(options.alarm):
        return alarm, histories
    known = [*alarms]
    message = f"{NAME}: {project} has no open alarm '{options.alarm}'"
    open_ = f"It has: {', '.join(known)}." if known else "It has no open alarm."
    remedy = f"{open_} {command('alarms')} lists them."
    raise UsageError(f"{message}{near_match(options.alarm, known)}", remedy=remedy)


def _sides(alarm: Alarm, name: str) -> tuple[str, str]:
    """The commits before and since the rise."""
    runs = (alarm.before, alarm.reached)
    for run in runs:
        if run.commit is None or run.dirty:
            what = "uncommitted changes" if run.dirty else "no commit"
            message = f"{NAME}: alarm {name}: run {run.run_id} had {what}, expected a commit"
            remedy = f"Compare both runs: {command('compare', *(it.run_id for it in runs))}"
            raise UsageError(message, remedy=remedy)
    before, since = (str(run.commit) for run in runs)
    if before == since:
        message = f"{NAME}: alarm {name}: got {commit_name(since)} on both sides"
        raise UsageError(message, remedy="The environment changed, not the sources.")
    return before, since


def _run_again(search: Search, checkout: Checkout, row: RerunRow, limit: Budget) -> RerunRow:
    """Run both sides of a row in turns; the runs of an earlier command count."""
    from ci.analysis.reruns import RerunOutcome, judge_reruns

    plan, sides = row.plan, search.commits

    def judged(values: Values) -> RerunRow:
        before, after = (list(values.get(it, {}).values()) for it in sides)
        finding = judge_reruns(before, after, rise=plan.rise, noise=plan.noise)
        return replace(row, values={it: values.get(it, {}) for it in sides}, finding=finding)

    def counts(values: Values) -> list[int]:
        return [len(values.get(it, {})) for it in sides]

    earlier = search.read_values()
    target = plan.runs
    if min(counts(earlier)) >= target and judged(earlier).outcome is RerunOutcome.UNDECIDED:
        target += min(counts(earlier))

    def choose(values: Values) -> str | None:
        good, bad = counts(values)
        if min(good, bad) >= target or not limit.begin_run():
            return None
        # Before, since, since, before: a machine that gets slower is no rise.
        is_before = good < bad or (good == bad and good % 2 == 0)
        commit = sides[0] if is_before else sides[1]
        number = f"{good + bad + 1} of {2 * target}"
        complain(f"{NAME}: {plan.platform}: run {commit_name(commit)}, {number}")
        return commit

    values = search.run_chosen(checkout, choose)
    return replace(judged(values), notes=tuple(_environment_notes(search, plan)))


def _question(project: str, report: RerunReport, plan: RerunPlan, engine: str | None) -> Question:
    """What to measure: the stage of the alarm, with the options of the runs that raised it."""
    key = plan.environment
    usual = key.engine.removesuffix(" engine")
    return Question(
        command=NAME,
        project=project,
        platform=plan.platform,
        good=report.before,
        bad=report.since,
        stage=plan.stage,
        measure=plan.measure,
        warm=key.cache in WARM,
        only_own_runs=True,
        options=RunOptions(
            engine=engine or (usual if usual in [*EngineKind] else "auto"),
            cold=key.cache == CacheState.COLD,
            trust=read_ci_job(os.environ).trust or Trust.BRANCH,
            reruns=0,
            shards=1 if key.shards == NONE else int(key.shards.split()[0]),
            selected=None if key.selection == ALL_OPERATORS else key.selection,
        ),
    )


def _environment_notes(search: Search, plan: RerunPlan) -> list[str]:
    """How the environment of the reruns differs from that of the runs that raised the alarm."""
    own = search.record.runs
    with open_store(search.results) as store:
        heads = [it for it in store.heads(project=search.question.project) if it.run_id in own]
        rows = store.measured(plan.platform, heads)
        keys = store.environment_keys({row.key for row in rows})
    changes = {str(it) for key in keys.values() for it in key.changes(plan.environment)}
    return [f"unlike in the alarm: {it}" for it in sorted(changes)]
