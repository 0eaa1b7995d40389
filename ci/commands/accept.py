"""``python -m ci accept``."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime

from ci.commands.accepting import add_accepted_file, write
from ci.commands.options import add_line, add_platform
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Accept the rises of cost that began with a run, in the project's file ci-accepted.yaml:"
        " they are no longer reported as regressions. A further rise above the accepted level is"
        " reported again."
    )
    add_platform(parser, "the platform with the rises")
    parser.add_argument("run", metavar="RUN", help="the first run with them: see `history`")
    parser.add_argument(
        "--reason",
        required=True,
        metavar="TEXT",
        help="why the rises are acceptable, such as 'torch 2.14 is slower to link'",
    )
    parser.add_argument(
        "--until",
        type=_parse_day,
        metavar="DAY",
        help="the last day (UTC) on which they are acceptable: 2026-12-31 (default: for good)",
    )
    add_line(parser)
    add_accepted_file(parser)


def _today() -> date:
    return datetime.now(UTC).date()


def _parse_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        message = f"got '{text}', expected a day such as 2026-12-31"
        raise argparse.ArgumentTypeError(message) from None
    if day < (today := _today()):
        raise argparse.ArgumentTypeError(f"got {day}, expected {today} or later")
    return day


def execute(options: argparse.Namespace) -> int:
    """Accept all measures that rose with the run."""
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from pydantic import ValidationError

    from ci.analysis.acceptances import Terms, accept_rises, add_acceptances
    from ci.analysis.platform_history import find_project, platform_histories, project_line
    from ci.plan.accepted import acceptor

    with reading_store(options.results) as store:
        project = find_project(store, options.platform, options.project)
        along = project_line(store, project, options.source, options.branch)
        [record] = platform_histories(
            store,
            [options.platform],
            along,
            stage=options.stage,
            text=options.measure,
            last=options.last,
        )
        terms = Terms(
            reason=options.reason,
            who=acceptor(options.source),
            date=_today(),
            until=options.until,
        )
        try:
            accepted = accept_rises(record, options.run, terms)
        except ValidationError as error:  # the reason is empty, too long, or not valid text
            found = error.errors()[0]
            raise UsageError(f"--{found['loc'][0]}: {found['msg']}") from None
        known = add_acceptances(along.accepted, accepted)
        write(store, project, known, "accepted", accepted, options)
    return ExitCode.PASSED
