"""``python -m ci history``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from ci.commands.notifying import add_notify, find_target, notify
from ci.commands.options import add_format, add_repository, add_results, choice_of, whole_number
from ci.commands.reading import reading_store
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.util.terminal import complain, show
from ci.util.text import counted

if TYPE_CHECKING:  # they import NumPy, pydantic and SQLAlchemy
    from ci.analysis.history import PlatformHistory, ProjectLine
    from ci.facts.acceptance import Acceptance
    from ci.store.store import Store

REGRESSION, ENVIRONMENT = "regression", "environment"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what the stages of a platform cost over its runs, what changed between which commits,"
        " and which changes are open regressions. Times are compared only where machine, toolchain,"
        " engine, compiler cache and selected operators are the same. Runs are in the order of"
        " their commits, along one branch: the main one, or that of --branch."
    )
    parser.add_argument(
        "platforms",
        nargs="*",
        metavar="PLATFORM",
        help="the platform to show. Without one, or with several: the open regressions of all (of"
        " the latest runs), those of one cause together",
    )
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="follow this branch: the runs of its target up to their newest common commit, then"
        " its own (default: the main branch; a run records both)",
    )
    parser.add_argument("--stage", metavar="S", help="only this stage: install, compile, pytest")
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="only the last N runs")
    parser.add_argument(
        "--project", metavar="NAME", help="project (default: that of the newest run)"
    )
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only open and suspected regressions; exit with 4 if one is open",
    )
    parser.add_argument(
        "--fail-on",
        type=choice_of((REGRESSION, ENVIRONMENT)),
        metavar=f"{{{REGRESSION},{ENVIRONMENT}}}",
        help="with --check, also exit with 4 on a confirmed rise that came with a change of the"
        " environment, such as a new compiler (environment; default: regression)",
    )
    add_notify(parser)
    parser.add_argument(
        "--accept",
        metavar="RUN",
        help="accept the rises that began with this run, in the project's file ci-accepted.yaml:"
        " they are no longer reported as regressions. A further rise above the accepted level is"
        " reported again",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="why the rise is acceptable; --accept requires it"
    )
    parser.add_argument(
        "--until",
        type=_parse_day,
        metavar="DAY",
        help="with --accept, the last day (UTC) on which it is acceptable: 2026-12-31 (default: for"
        " good)",
    )
    parser.add_argument(
        "--withdraw",
        metavar="RUN",
        help="remove the acceptances of rises that began with this run or commit",
    )
    parser.add_argument(
        "--flaky",
        action="store_true",
        help="show only tests that both passed and failed at one commit in one environment",
    )
    add_repository(parser, "with its file ci-accepted.yaml")
    add_results(parser)


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        message = f"got '{text}', expected a day such as 2026-12-31"
        raise argparse.ArgumentTypeError(message) from None


def execute(options: argparse.Namespace) -> int:
    """Show the history of platforms or flaky tests, or accept a rise; send new alarms."""
    _refuse_contradictions(options)
    target = find_target(options) if options.check else None
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.acceptances import project_acceptances
    from ci.analysis.alarms import find_alarms
    from ci.analysis.history import find_project, project_line
    from ci.report.alarms import AlarmReport
    from ci.report.history import HistoryReport

    names = list(dict.fromkeys(options.platforms))
    with reading_store(options.results) as store:
        project = find_project(store, names[0] if names else None, options.project)
        for name in names[1:]:
            find_project(store, name, project)
        if options.flaky:
            from ci.analysis.flaky import find_flaky_tests
            from ci.report.tests import FlakyReport

            found = find_flaky_tests(store, names[0], project)
            FlakyReport(names[0], found).show(options.format)
            return ExitCode.PASSED
        known = project_acceptances(store, options.source, project)
        if options.withdraw:
            return _withdraw(store, project, known, options)
        along = project_line(store, project, options.branch)
        histories = _histories(store, names or along.platforms, along, known, options)
        if options.accept:
            return _accept(store, histories[0], known, options)
        _mirror(store, project, known)
        alarms = find_alarms(histories, along.order)
        if len(names) == 1:
            HistoryReport(histories[0], options.check).show(options.format)
        else:
            AlarmReport(project, along.line.branch, histories, alarms).show(options.format)
        fatal = [it for it in alarms if it.kind == REGRESSION or options.fail_on == ENVIRONMENT]
        if target:
            notify(store, target, fatal, histories, along)
    if not options.check:
        return ExitCode.PASSED
    if fatal:
        return ExitCode.REGRESSION
    # Without an environment, no stage of a platform completed in any run: not a success.
    judged = histories and all(it.history.environments for it in histories)
    return ExitCode.PASSED if judged else ExitCode.PRODUCT_FAILURE


def _histories(
    store: Store,
    names: Iterable[str],
    along: ProjectLine,
    known: Sequence[Acceptance],
    options: argparse.Namespace,
) -> list[PlatformHistory]:
    from ci.analysis.history import platform_histories
    from ci.analysis.repository import Repository

    return platform_histories(
        store,
        names,
        along,
        repository=Repository(options.source),
        stage=options.stage,
        last=options.last,
        accepted=known,
        today=datetime.now(UTC).date(),
    )


def _mirror(store: Store, project: str, known: Sequence[Acceptance]) -> None:
    """Update the store's copy of the acceptances; reports do not depend on it."""
    try:
        store.mirror_accepted(project, known)
    except InfrastructureError as error:
        complain(f"warning: {error}\n{error.remedy or ''}".rstrip())


def _accept(
    store: Store,
    record: PlatformHistory,
    known: Sequence[Acceptance],
    options: argparse.Namespace,
) -> int:
    from pydantic import ValidationError

    from ci.analysis.acceptances import Terms, accept_rises, add_acceptances
    from ci.plan.accepted import acceptor

    terms = Terms(
        reason=options.reason.strip(),
        who=acceptor(options.source),
        date=datetime.now(UTC).date(),
        until=options.until,
    )
    try:
        accepted = accept_rises(record, options.accept, terms)
    except ValidationError as error:  # the reason is too long, or not valid text
        found = error.errors()[0]
        raise UsageError(f"--accept: {found['loc'][0]}: {found['msg']}") from None
    _write(store, record.project, add_acceptances(known, accepted), options)
    _show_edit("accepted", accepted, options)
    return ExitCode.PASSED


def _withdraw(
    store: Store, project: str, known: Sequence[Acceptance], options: argparse.Namespace
) -> int:
    from ci.analysis.acceptances import withdrawn

    commits = {run.run_id: run.commit for run in store.heads(project=project) if not run.dirty}
    removed = withdrawn(
        known, options.platforms[0], options.withdraw, commits.get(options.withdraw)
    )
    _write(store, project, [it for it in known if it not in removed], options)
    _show_edit("withdrawn", removed, options)
    return ExitCode.PASSED


def _write(
    store: Store, project: str, accepted: Sequence[Acceptance], options: argparse.Namespace
) -> None:
    """Write the file, then the store's copy: a lost copy is restored from the file."""
    from ci.plan.accepted import write_accepted

    path = write_accepted(options.source, project, accepted)
    _mirror(store, project, accepted)
    if options.format != "json":
        show(f"{path}: written. Review the change, then commit the file.")


def _show_edit(what: str, changed: Sequence[Acceptance], options: argparse.Namespace) -> None:
    from ci.report.history import accepted_text

    if options.format != "json":
        show("\n".join(f"{what}: {accepted_text(it)}" for it in changed))
        return
    listed = [{"measure": it.measure, **it.model_dump(mode="json")} for it in changed]
    show(json.dumps({what: listed}, indent=2))


def _refuse_contradictions(options: argparse.Namespace) -> None:
    for name in ("accept", "withdraw", "flaky"):
        if getattr(options, name) and len(options.platforms) != 1:
            message = f"--{name}: got {counted(len(options.platforms), 'platform')}, expected one"
            raise UsageError(message, remedy="Name the platform: history PLATFORM.")
    if options.accept and not (options.reason or "").strip():
        message = "--accept: got no reason, expected one"
        raise UsageError(message, remedy='Give it: --reason "torch 2.14 is slower to link".')
    for name in ("reason", "until"):
        if getattr(options, name) and not options.accept:
            message = f"--{name}: can only be used with --accept"
            raise UsageError(message, remedy="Name the run to accept: --accept RUN")
    if options.until and options.until < (today := datetime.now(UTC).date()):
        message = f"--until: got {options.until}, expected {today} or later"
        raise UsageError(message, remedy="Name the last day on which the rise is acceptable.")
    edit = "accept" if options.accept else "withdraw"
    if options.accept and options.withdraw:
        message = "--accept: cannot be combined with --withdraw"
        raise UsageError(message, remedy="Run `history --withdraw` first.")
    for name in ("fail_on", "notify"):
        if getattr(options, name) and not options.check:
            message = f"--{name.replace('_', '-')}: can only be used with --check"
            raise UsageError(message, remedy="Add it: --check")
    if options.flaky and (
        options.accept or options.withdraw or options.check or options.stage or options.last
    ):
        message = (
            "--flaky: cannot be combined with --accept, --withdraw, --check, --stage or --last"
        )
        raise UsageError(message, remedy="Leave them out.")
    if (options.accept or options.withdraw) and options.check:
        message = f"--{edit}: cannot be combined with --check"
        raise UsageError(message, remedy=f"Run `history --{edit}` first, then `history --check`.")
    if (options.accept or options.withdraw) and options.format == "markdown":
        raise UsageError(f"--{edit}: got --format markdown, expected table or json")
