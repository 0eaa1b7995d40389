"""``python -m ci bisect``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median

from ci.analysis.bisection import Answer
from ci.analysis.platform_history import explain_changes
from ci.analysis.repository import Repository
from ci.commands.options import add_platform, add_runs_of_commits, config_file
from ci.errors import ExitCode, UsageError
from ci.facts.measures import amount, measure_name, stage_and_quantity
from ci.model.platforms import PLATFORMS
from ci.model.trust import Trust
from ci.plan.ci_variables import read_ci_job
from ci.plan.config import Config
from ci.plan.planning import RunOptions
from ci.plan.project import chosen_platforms, load_project
from ci.plan.request import selected_operators
from ci.plan.source import state
from ci.protocol.stage_kind import StageKind
from ci.report.bisection_report import BisectionReport
from ci.run.commit_runs import temporary_checkout
from ci.run.search import Question, Search, Values
from ci.store.folder import make_folder, open_store
from ci.util.git import git
from ci.util.invocation import command
from ci.util.terminal import complain
from ci.util.text import commit_name, join_names


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Find the commit since which a stage is slower, a benchmark is worse or a test fails. Runs"
        " commits between GOOD and BAD, in a folder outside of the sources, the most informative"
        " first, and each as often as the noise needs, and up to the stage in question. Commits"
        " that do not build are stepped over. Stored runs of the same environment are used. If it"
        " is interrupted, the same command continues."
    )
    add_platform(parser, "the platform to run")
    for name, which in (("good", "before the change"), ("bad", "with the change")):
        parser.add_argument(
            f"--{name}",
            metavar="REV",
            required=True,
            help=f"a commit {which}: any git revision. Merged branches are one commit each",
        )
    question = parser.add_mutually_exclusive_group()
    question.add_argument(
        "--stage",
        metavar="S",
        help="the stage that got slower: install, compile, pytest (default: install, or with"
        " --measure the stage with benchmarks)",
    )
    question.add_argument("--test", metavar="ID", help="the test that fails: its pytest node id")
    parser.add_argument(
        "--measure",
        metavar="TEXT",
        help="the benchmark that got worse: its name, or a part of it that no other one has. With"
        " --stage also another measure, such as 'peak memory' or 'executed tests' (default: the"
        " stage's seconds)",
    )
    parser.add_argument(
        "--warm",
        action="store_true",
        help="with --stage, measure with a filled compiler cache: one more run per commit fills it"
        " (default: build without the cache's contents)",
    )
    add_runs_of_commits(parser)


def execute(options: argparse.Namespace) -> int:
    """Search, and report the first bad commit; exits with 3 if the noise is too large for it."""
    if options.warm and options.test:
        message = "--warm: cannot be combined with --test: the cache changes only times"
        raise UsageError(message, remedy="Leave out --warm.")
    if options.measure and options.test:
        message = "--measure: cannot be combined with --test, which has no measure"
        raise UsageError(message, remedy="Leave out one of them.")
    config = config_file(options)
    project = load_project(config, os.environ)
    chosen_platforms(project.config, [options.platform])
    source = (options.source or project.source).resolve()
    commits = _commits_between(source, options.good, options.bad)
    make_folder(options.results)
    search = Search(
        question=Question(
            project=project.config.project,
            platform=options.platform,
            good=commits[0],
            bad=commits[-1],
            stage=None if options.test else _stage(options, project.config),
            test=options.test,
            text=options.measure,
            warm=options.warm,
            options=RunOptions(
                engine=options.engine or "auto",
                cold=not (options.warm or options.test),
                trust=read_ci_job(os.environ).trust or Trust.BRANCH,
                reruns=0,
                selected=selected_operators(project, options.select, source),
            ),
        ),
        commits=commits,
        results=options.results,
    )
    if state(source).dirty:
        complain(f"bisect: the uncommitted changes of {source} are in none of its commits")
    with temporary_checkout(source, config, search.question.name) as checkout:
        values = search.go_on(checkout)
    found = search.bisection(values)
    if found.is_hopeless:
        raise _no_difference(search, values)
    report = _report(search, values, found.answer, source)
    report.show(options.format)
    return ExitCode.PASSED if found.answer.is_sure else ExitCode.INFRASTRUCTURE


def _stage(options: argparse.Namespace, config: Config) -> str:
    """The stage in question: the build, or with ``--measure`` one that has benchmarks."""
    if options.stage:
        return str(options.stage)
    if not options.measure:
        of_platform = [
            it for it in config.stages if options.platform in (it.platforms or PLATFORMS)
        ]
        return "wheel" if any(it.name == "wheel" for it in of_platform) else "install"
    known = [
        it.name
        for it in config.stages
        if it.kind is StageKind.BENCHMARK
        and (it.platforms is None or options.platform in it.platforms)
    ]
    if len(known) == 1:
        return known[0]
    stages = f"the stages {join_names(known)} have them" if known else "no stage has any"
    message = f"--measure: got '{options.measure}' without a stage, expected one with benchmarks"
    raise UsageError(f"{message}: {stages}", remedy="Name the stage of the measure: --stage STAGE")


def _commits_between(source: Path, good: str, bad: str) -> tuple[str, ...]:
    """The commits from the good one to the bad one, oldest first, without those of side lines."""
    repository = Repository(source)
    shallow = ""
    if repository.is_shallow:
        shallow = f" {source} is a shallow clone. Fetch its history: git fetch --unshallow"
    ends = []
    for option, name in (("--good", good), ("--bad", bad)):
        found = repository.commits(name)
        if not found:
            message = f"{option}: {source}: {repository.git_error or f'no commit {name!r}'}"
            remedy = f"Name a commit, a branch or a tag of a git repository.{shallow}"
            raise UsageError(message, remedy=remedy)
        ends.append(found[0])
    line = repository.line(ends[1])
    if ends[0] in line[1:]:
        return line[: line.index(ends[0]) + 1][::-1]
    names = [commit_name(commit) for commit in ends]
    message = f"--good: {names[0]} is not before {names[1]} on its line of first parents"
    if ends[0] == ends[1]:
        message = f"--good and --bad: got {names[0]} twice"
    remedy = f"Name a commit that `git log --first-parent {bad}` lists below the first.{shallow}"
    raise UsageError(message, remedy=remedy)


def _no_difference(search: Search, values: Values) -> UsageError:
    asked, ends = search.question, [values[it] for it in (search.commits[0], search.commits[-1])]
    good, bad = (f"{sum(it.values()):.0f} of {len(it)}" for it in ends)
    what = f"{asked.test} failed in {good} and in {bad} runs"
    if asked.stage and search.measure:
        levels = [median(it.values()) for it in ends]
        quantity, step = stage_and_quantity(search.measure)[1], abs(levels[1] - levels[0])
        good, bad = (
            f"{amount(level, quantity, step=step)} in {len(it)} runs"
            for level, it in zip(levels, ends, strict=True)
        )
        what = f"{measure_name(search.measure)} was {good} and {bad} (medians)"
    message = f"--good and --bad: got no significant difference, expected one: {what}"
    return UsageError(message, remedy="Name commits further apart, or another stage or test.")


def _report(search: Search, values: Values, answer: Answer, source: Path) -> BisectionReport:
    asked, record = search.question, search.record
    bad = answer.first_bad[-1]
    run_ids = [[*values[it]] for it in (answer.before, bad)]  # newest first
    references = [f"{ids[0]}/{asked.platform}" for ids in run_ids]
    most = f"--max-count={len(search.commits)}"
    log = git(source, "log", "--first-parent", most, "--format=%H %s", asked.bad)
    lines = (line.partition(" ") for line in log.splitlines())
    return BisectionReport(
        platform=asked.platform,
        stage=asked.stage,
        test=asked.test,
        measure=search.measure,
        commits=search.commits,
        subjects={commit: subject for commit, _, subject in lines},
        values=values,
        skipped=record.skipped,
        answer=answer,
        cause=_cause(search, values, answer, run_ids),
        comparison=command("compare", *references),
    )


def _cause(search: Search, values: Values, answer: Answer, run_ids: list[list[str]]) -> str:
    """Why the stage is slower, or the message of the test."""
    asked, measure = search.question, search.measure
    place = search.commits.index(answer.first_bad[-1])
    sides = [
        {run_id: value for commit in side for run_id, value in values.get(commit, {}).items()}
        for side in (search.commits[:place], search.commits[place:])
    ]
    with open_store(search.results) as store:
        if measure is None:
            failed = next(run_id for run_id, bad in sides[1].items() if bad)
            failures = store.outcomes(failed, asked.platform).failures
            return failures.get(asked.test or "") or ""
        ends = []
        for ids, side in zip(run_ids, sides, strict=True):
            result = store.load_platform(ids[0], asked.platform)
            ends.append((result, ids, {measure: median(side.values())}))
        return explain_changes(store, [measure], ends)[0].text
