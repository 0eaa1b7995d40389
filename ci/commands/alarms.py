"""``python -m ci alarms``."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ci.commands.options import add_format, add_project, add_repository, add_results
from ci.commands.reading import reading_store
from ci.commands.tracking import tracked_alarms
from ci.errors import ExitCode, UsageError
from ci.util.text import SHORT, join_names, mask_credentials, near_match

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.alarm_tracking import TrackedAlarm
    from ci.analysis.platform_history import ProjectLine
    from ci.store.rows import AlarmRecord

LONGEST = 10_000  # characters, as of a reason in ci-accepted.yaml


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "List the alarms of all platforms, or set the state of one. An alarm keeps its id while"
        " further runs move the commits between which it began. States are kept in the store;"
        " `accept` is for a rise that stays."
    )
    parser.add_argument(
        "alarm", nargs="?", metavar="ID", help="an alarm, as `alarms` and messages name it"
    )
    state = parser.add_mutually_exclusive_group()
    state.add_argument(
        "--acknowledge",
        action="store_true",
        help="someone works on it: it is not sent again, and `history --check` still fails on it",
    )
    state.add_argument(
        "--fixed",
        metavar="COMMIT",
        help="this commit fixes it. If the cost is not back after 10 commits with runs, the alarm"
        " is open again",
    )
    state.add_argument(
        "--invalid",
        action="store_true",
        help="it is no regression, but noise: `history --check` no longer fails on it",
    )
    state.add_argument("--reopen", action="store_true", help="it is open, whatever was said before")
    parser.add_argument("--note", metavar="TEXT", help="why it has this state")
    parser.add_argument(
        "--by",
        metavar="NAME",
        help="who says so (default: your name in commits of the project)",
    )
    parser.add_argument("--link", metavar="URL", help="its issue, such as https://HOST/issues/7")
    parser.add_argument(
        "--all", action="store_true", help="also list the alarms that are over, and how they ended"
    )
    parser.add_argument(
        "--branch", metavar="NAME", help="follow this branch (default: the main branch)"
    )
    add_project(parser)
    add_format(parser, "table", "markdown", "json")
    add_repository(parser, "with its files ci-accepted.yaml and CODEOWNERS")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """List the alarms, or set the state of one and show it."""
    _check(options)
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.platform_history import find_project, platform_histories, project_line
    from ci.report.alarm_list import AlarmList

    with reading_store(options.results) as store:
        project = find_project(store, None, options.project)
        along = project_line(store, project, options.source, options.branch)
        histories = platform_histories(store, along.platforms, along)
        tracked = tracked_alarms(store, histories, along)
        if options.alarm is not None:
            tracked = [_find(options.alarm, tracked)]
            if (record := _state(tracked[0], along, options)) != tracked[0].record:
                store.save_alarms(project, [record])
                found = tracked_alarms(store, histories, along)
                tracked = [_find(options.alarm, found)]
        elif not options.all:
            tracked = [it for it in tracked if it.alarm]
        AlarmList(project, along.line.branch, tracked).show(options.format)
    return ExitCode.PASSED


def _check(options: argparse.Namespace) -> None:
    """Refuse options without what they belong to."""
    is_fixed = options.fixed is not None
    is_state = options.acknowledge or is_fixed or options.invalid or options.reopen
    if options.alarm is None and (is_state or options.note or options.by or options.link):
        message = "alarms: got a state, a note or a link, expected the alarm that it is for"
        raise UsageError(message, remedy="Name its id: `alarms` lists them.")
    if not is_state and (options.note or options.by):
        message = "--note and --by: can only be used with a state"
        raise UsageError(message, remedy="Add it: --acknowledge, --fixed, --invalid or --reopen")
    for name in ("note", "by"):
        text = getattr(options, name)
        if text is not None and not (text.strip() and text.isprintable() and len(text) <= LONGEST):
            expected = f"expected 1 to {LONGEST:,} printable characters on one line"
            raise UsageError(f"--{name}: got {text[:100]!a}, {expected}")
    if options.link is not None and not _is_address(options.link):
        shown = mask_credentials(options.link[:100])
        raise UsageError(f"--link: got {shown!a}, expected https://HOST/PATH without a password")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    is_plain = text.isascii() and text.isprintable() and " " not in text and len(text) <= LONGEST
    has_host = parts.scheme in ("http", "https") and bool(parts.netloc)
    return is_plain and has_host and "@" not in parts.netloc


def _find(alarm_id: str, tracked: list[TrackedAlarm]) -> TrackedAlarm:
    known = {it.record.alarm_id: it for it in tracked}
    if alarm_id in known:
        return known[alarm_id]
    message = f"alarms: there is no alarm '{alarm_id}'{near_match(alarm_id, known)}"
    remedy = f"Alarms: {join_names([*known])}." if known else "There is no alarm."
    raise UsageError(message, remedy=remedy)


def _state(tracked: TrackedAlarm, along: ProjectLine, options: argparse.Namespace) -> AlarmRecord:
    """The record of an alarm with what the options say of it."""
    from ci.analysis.alarm_tracking import with_levels
    from ci.plan.accepted import acceptor
    from ci.store.rows import AlarmState

    states = {
        AlarmState.ACKNOWLEDGED: options.acknowledge,
        AlarmState.FIXED: options.fixed is not None,
        AlarmState.INVALID: options.invalid,
        AlarmState.OPEN: options.reopen,
    }
    record = replace(tracked.record, link=options.link or tracked.record.link)
    if (state := next((it for it, chosen in states.items() if chosen), None)) is None:
        return record
    return replace(
        record,
        rises=with_levels(tracked).rises,
        state=state,
        who=options.by or acceptor(options.source),
        note=options.note,
        commit=None if options.fixed is None else _commit(options.fixed, along),
        stated_at=datetime.now(UTC),
    )


def _commit(name: str, along: ProjectLine) -> str:
    """The whole id of a commit: of a run, or of the project's repository."""
    if re.fullmatch(r"[0-9a-f]{7,64}", name):
        known = {run.commit for run in along.heads if (run.commit or "").startswith(name)}
        if len(known) == 1:
            return str(known.pop())
    if found := along.repository.commits(name):
        return found[0]
    message = f"--fixed: got '{name}', expected a commit of {along.repository.folder} or of a run"
    remedy = f"Fetch it, or write at least {SHORT} digits of a commit that a run tested."
    raise UsageError(message, remedy=remedy)
