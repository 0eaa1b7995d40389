"""The earlier run that ``shell`` and ``rerun`` name."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ci.commands.options import add_platform, add_results
from ci.commands.reading import reading_store
from ci.errors import UsageError
from ci.plan.request import read_request
from ci.run.session import Recorded, Session, name_in_results, new_session
from ci.upkeep.bundle.unpack import open_bundle
from ci.util.text import near_match


def add_recorded(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a platform of a run."""
    parser.add_argument("run", metavar="RUN", help="run id, or latest")
    add_platform(parser, "one of its platforms")
    add_results(parser)


@contextmanager
def recorded_session(
    options: argparse.Namespace, asked: str, *, test: str | None = None
) -> Iterator[Session]:
    """Yield the session of the platform that the options name; open the bundle of its run, if any.

    Raises ``UsageError`` as ``read_recorded`` does, or if that bundle is gone or another one.
    """
    recorded = read_recorded(options, asked, test=test)
    bundle = recorded.request.bundle
    if bundle is None:
        yield new_session(recorded)
        return
    with open_bundle(bundle, (recorded.result.platform,)) as opened:
        request = opened.resume(recorded.request, asked)
        yield new_session(replace(recorded, request=request, bundled=opened.plans))


def read_recorded(options: argparse.Namespace, asked: str, *, test: str | None = None) -> Recorded:
    """Return the platform of the run that the options name; ``asked`` is the command.

    Raises ``UsageError`` if there is none, if the run did not begin here, or if it has no ``test``.
    """
    with reading_store(options.results, run=options.run) as store:
        run = store.load(options.run)
        result = run.platform(options.platform)
        known = store.outcomes(run.run_id, result.platform).names if test else ()
    if test and known:
        test = name_in_results(options.results / run.run_id / result.platform, test)
    if test and known and test not in known:
        message = f"{asked}: run {run.run_id}/{result.platform} has no test '{test}'"
        hint = near_match(test, known)
        raise UsageError(f"{message}{hint}", remedy="Name a test as pytest does: FILE::TEST[ID].")
    request = read_request(options.results, run.run_id, asked)
    return Recorded(request=request, result=result, results=options.results)
