"""``--notify``: a message for an alarm or a failed run. Its faults never change an exit code."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci.errors import CiError, UsageError
from ci.plan.ci_variables import job_page
from ci.util.process import NOTIFY_VARIABLE
from ci.util.terminal import complain
from ci.util.text import MASK
from ci.util.webhook import FORMS, post_json, split_form

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.alarm_tracking import TrackedAlarm
    from ci.analysis.platform_history import ProjectLine
    from ci.model.results import RunResult
    from ci.store.store import Store

Target = tuple[str, str]  # form and URL
BY_VARIABLE: Target = ("", "")
# The address is a secret: no message repeats it.
WRONG = (
    f"got '{MASK}', expected an address https://HOST/PATH or FORM+https://HOST/PATH, with a form of"
    f" {', '.join(FORMS)}"
)


def add_notify(parser: argparse.ArgumentParser) -> None:
    """Add ``--notify``, the address for alarms."""
    parser.add_argument(
        "--notify",
        type=_parse_target,
        metavar="URL",
        help="with --check, POST each new alarm to this webhook, once, and later its correction or"
        " its end: as JSON, or as a message for Slack, Feishu or DingTalk, which follows from the"
        " host or from a prefix such as slack+https://HOST/PATH (default: $INFINI_CI_NOTIFY). A"
        " failed POST is a warning",
    )


def add_run_notify(parser: argparse.ArgumentParser) -> None:
    """Add ``--notify``, the address for a run that does not pass."""
    parser.add_argument(
        "--notify",
        type=_parse_target,
        nargs="?",
        const=BY_VARIABLE,
        metavar="URL",
        help="if a platform does not pass, POST what failed to this webhook, in the forms of"
        " `history --notify` (default without URL: $INFINI_CI_NOTIFY). A failed POST is a warning",
    )


def _parse_target(address: str) -> Target:
    if found := split_form(address):
        return found
    raise argparse.ArgumentTypeError(WRONG)


def find_target(options: argparse.Namespace) -> Target | None:
    """The target of ``--notify``, by default that of the environment variable."""
    target: Target | None = options.notify
    return target or _variable_target()


def find_run_target(options: argparse.Namespace) -> Target | None:
    """The target of ``run --notify``; ``None`` without this option: not every run is for a chat."""
    if options.notify != BY_VARIABLE:
        target: Target | None = options.notify
        return target
    if found := _variable_target():
        return found
    message = f"--notify: got no URL, and {NOTIFY_VARIABLE} is not set"
    raise UsageError(message, remedy="Set one of them.")


def _variable_target() -> Target | None:
    address = os.environ.get(NOTIFY_VARIABLE)
    if not address:
        return None
    if found := split_form(address):
        return found
    remedy = f"Correct it, or unset {NOTIFY_VARIABLE}."
    raise UsageError(f"{NOTIFY_VARIABLE}: {WRONG}", remedy=remedy)


def notify(
    store: Store, target: Target, tracked: Sequence[TrackedAlarm], along: ProjectLine
) -> None:
    """Post what this address does not know yet of each alarm, and remember it in the store."""
    from ci.analysis.alarm_messages import due_event, message_of
    from ci.report.alarm_report import notification

    form, url = target
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]  # the store does not get the secret
    try:
        sent = store.alarm_messages(along.project, digest)
        for it in tracked:
            last = sent.get(it.record.alarm_id)
            if (event := due_event(it, last, along, sent.values())) is None:
                continue
            branch = along.line.branch
            body = notification(it, event, form, project=along.project, branch=branch, said=last)
            post_json(url, form, body)
            message = message_of(it, event, last, along, datetime.now(UTC))
            store.save_message(along.project, digest, message)
    except CiError as error:
        complain(f"warning: {error}\n{error.remedy or ''}".rstrip())


def notify_of_run(target: Target, run: RunResult, folder: Path) -> None:
    """Post what failed in a run; ``folder`` has its results."""
    from ci.report.run_notification import run_notification

    form, url = target
    try:
        body = run_notification(run, form, folder=folder, job=job_page(os.environ))
        post_json(url, form, body)
    except CiError as error:
        complain(f"warning: {error}\n{error.remedy or ''}".rstrip())
