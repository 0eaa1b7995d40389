"""``python -m ci gc``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import groupby

from rich.filesize import decimal

from ci.commands.options import add_config, add_format, add_results, config_file
from ci.engines import typed_errors
from ci.engines.docker import DockerEngine
from ci.engines.link import ERRORS, explain
from ci.engines.select import select_engine
from ci.errors import CiError, ExitCode
from ci.plan.project import Project, load_project
from ci.upkeep.gc import (
    Choice,
    Item,
    Kind,
    Limits,
    Scope,
    Usage,
    choose,
    engine_items,
    machine_items,
    run_folders,
)
from ci.util.text import counted, mask_credentials, printable

# By judgement, not measured: after two weeks' absence a run can still be resumed, and images with
# torch and a vendor's toolkit, of several GB each, stay for seven platforms.
DAYS = 14.0
GIGABYTES = 50.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Remove what runs have left: containers that ended, images, compiler caches, results and"
        " work folders. Only what this program made and labelled; never what a run uses that goes"
        " on, nor the latest results. Rows of the store stay: report, compare and history show"
        " runs whose folders are gone."
    )
    parser.add_argument(
        "--older-than",
        type=_number,
        default=DAYS,
        metavar="DAYS",
        help=f"remove what was not used for so long (default: {DAYS:g})",
    )
    parser.add_argument(
        "--keep-size",
        type=_number,
        default=GIGABYTES,
        metavar="GB",
        help="keep at most so much of images, and as much of compiler caches, on each engine;"
        f" the longest unused go first (default: {GIGABYTES:g})",
    )
    parser.add_argument(
        "--engine", metavar="ENGINE", help="look there only (default: wherever platforms run)"
    )
    parser.add_argument(
        "--project",
        metavar="NAME",
        help="only what is labelled with this project (default: the configuration's, and what"
        " builds left without a label of any project)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed")
    add_format(parser, "table", "json")
    add_config(parser)
    add_results(parser)


def _number(text: str) -> float:
    try:
        value = float(text) if text.isascii() else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"got '{text}', expected a number from 0 to 1000000")
    return value


def execute(options: argparse.Namespace) -> int:
    """Choose what is removed, remove it, and print what became of everything."""
    project = load_project(config_file(options), os.environ)
    age = timedelta(days=options.older_than)
    limits = Limits(age=age, size_bytes=round(options.keep_size * 1e9))
    usages, silent = _usages(project, options.engine)
    freed, images, listed = 0, False, []
    table = options.format == "table"
    for place, items in _places(options, project, usages):
        choices = choose(items, limits, datetime.now(UTC))
        if table:
            print(f"{place}:" if choices else f"{place}: nothing of ours")
        for choice in choices:
            failure = None
            if choice.removed and not options.dry_run:
                try:
                    choice.item.remove()
                except (CiError, *ERRORS) as fault:  # it stops no other
                    failure = printable(explain(fault))
            if choice.removed:
                freed += 0 if failure else choice.item.size_bytes
                images |= choice.item.kind is Kind.IMAGE
                if table:
                    _print_removed(choice, failure, dry_run=options.dry_run)
            listed.append(_listed(place, choice, failure))
        if table:
            _print_kept([choice for choice in choices if not choice.removed])
    if table:
        most = ", less what these images share with others" if images else ""
        print(f"{'would free' if options.dry_run else 'freed'} {decimal(freed)}{most}")
    else:
        content = {"dry_run": options.dry_run, "freed_bytes": freed, "items": listed}
        print(json.dumps(content, indent=2))
    for error in silent:
        message = "\n".join(filter(None, (mask_credentials(str(error)), error.remedy)))
        print(f"error: {message}", file=sys.stderr)
    return ExitCode.INFRASTRUCTURE if silent else ExitCode.PASSED


def _usages(project: Project, asked: str | None) -> tuple[tuple[Usage, ...], list[CiError]]:
    """What every engine of the platforms stores, each once; and why some do not answer."""
    plans = {project.engine(platform, asked): None for platform in project.config.platforms}
    usages: dict[str, Usage] = {}
    silent: list[CiError] = []
    for plan in plans:
        try:
            engine = select_engine(plan)
            if isinstance(engine, DockerEngine):
                with _engine_errors():
                    usages[engine.client.info()["ID"]] = Usage.ask(engine.client)
        except CiError as error:
            silent.append(error)
    return tuple(usages.values()), silent


def _engine_errors() -> AbstractContextManager[None]:
    remedy = "look at `docker info` and the engine's log"
    return typed_errors("asking the Docker Engine", *ERRORS, remedy=remedy, explain=explain)


def _places(
    options: argparse.Namespace, project: Project, usages: Sequence[Usage]
) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """What of ours is on each engine and on this machine, by its name.

    Engines come before this machine: what runs in their containers is needed here too.
    """
    runs = run_folders(options.results)
    going_on = [run for run in runs if run.going_on]
    scope = Scope(
        project=options.project or project.config.project,
        strangers=options.project is None,
        runs={run.run_id for run in going_on}.union(*(usage.running for usage in usages)),
        platforms={platform for run in going_on for platform in run.platforms},
    )
    for usage in usages:
        with _engine_errors():
            items = tuple(engine_items(usage, scope))
        yield f"Docker Engine of {usage.machine}", items
    yield "this machine", tuple(machine_items(runs, scope))


def _print_removed(choice: Choice, failure: str | None, *, dry_run: bool) -> None:
    """``removed image infini-ci/cpu:0123, 1.5 GB, last used 20 days ago: not used for 14 days``."""
    item = choice.item
    days = (datetime.now(UTC) - item.used) / timedelta(days=1)
    ago = f"{counted(round(days), 'day')} ago" if days >= 1 else "today"
    what = f"{item.kind} {printable(item.name)}, {decimal(item.size_bytes)}, last used {ago}"
    if failure:
        print(f"  cannot remove {what}: {failure}")
    else:
        print(f"  {'would remove' if dry_run else 'removed'} {what}: {choice.reason}")


def _print_kept(kept: Sequence[Choice]) -> None:
    """``kept 2 images, 3.1 GB: used within 14 days``."""

    def group(choice: Choice) -> tuple[int, str]:
        return list(Kind).index(choice.item.kind), choice.reason

    for (number, reason), choices in groupby(sorted(kept, key=group), key=group):
        kind, sizes = list(Kind)[number], [choice.item.size_bytes for choice in choices]
        of_runs = f"results of {counted(len(sizes), 'run')}"
        what = of_runs if kind is Kind.RESULTS else counted(len(sizes), kind)
        print(f"  kept {what}, {decimal(sum(sizes))}: {reason}")


def _listed(place: str, choice: Choice, failure: str | None) -> dict[str, object]:
    return {
        "place": place,
        "kind": choice.item.kind,
        "name": printable(choice.item.name),
        "bytes": choice.item.size_bytes,
        "last_used": choice.item.used.isoformat(),
        "removed": choice.removed and failure is None,
        "reason": choice.reason,
        "failure": failure,
    }
