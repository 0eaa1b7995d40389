"""``python -m ci gc``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from rich.filesize import decimal

from ci.commands.options import add_config, add_format, add_results
from ci.engines import typed_errors
from ci.engines.docker import DockerEngine
from ci.engines.link import ERRORS, explain
from ci.engines.select import select_engine
from ci.errors import CiError, ExitCode
from ci.plan.project import Project, load_project
from ci.upkeep.gc.engine import Usage, cache_items, container_items, image_items, last_runs
from ci.upkeep.gc.folders import (
    RunFolder,
    host_cache_items,
    results_items,
    run_folders,
    work_items,
)
from ci.upkeep.gc.items import Choice, Item, Kind, Limits, choose
from ci.util.files import REPOSITORY
from ci.util.invocation import CONFIG_FILE
from ci.util.text import counted, mask_credentials, printable

DAYS = 14.0
GIGABYTES = 50.0
THIS_MACHINE = "this machine"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An engine or this machine, and what of ours is on it."""

    name: str
    items: tuple[Item, ...]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.set_defaults(command=_gc)
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


def _gc(options: argparse.Namespace) -> int:
    project = load_project(options.config or REPOSITORY / CONFIG_FILE, os.environ)
    limits = Limits(
        age=timedelta(days=options.older_than), size_bytes=round(options.keep_size * 1e9)
    )
    usages, silent = _usages(project, options.engine)
    runs = run_folders(options.results)
    freed, images, listed = 0, False, []
    table = options.format == "table"
    for place in _places(options, project, usages, runs):
        choices = choose(place.items, limits, datetime.now(UTC))
        if table:
            print(f"{place.name}:" if choices else f"{place.name}: nothing of ours")
        for choice in choices:
            why = None
            if choice.removed:
                why = None if options.dry_run else _failure(choice.item)
                freed += 0 if why else choice.item.size_bytes
                if table:
                    _print_removed(choice, why, dry_run=options.dry_run)
            listed.append(_json(place, choice, why))
        images |= any(it.removed and it.item.kind is Kind.IMAGE for it in choices)
        if table:
            _print_kept([choice for choice in choices if not choice.removed])
    if table:
        most = ", less what these images share with others" if images else ""
        print(f"{'would free' if options.dry_run else 'freed'} {decimal(freed)}{most}")
    else:
        content = {"dry_run": options.dry_run, "freed_bytes": freed, "items": listed}
        print(json.dumps(content, indent=2))
    for error in silent:
        print(
            f"error: {mask_credentials(str(error))}\n{error.remedy or ''}".rstrip(), file=sys.stderr
        )
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
    options: argparse.Namespace,
    project: Project,
    usages: Sequence[Usage],
    runs: tuple[RunFolder, ...],
) -> Iterator[Place]:
    """Engines before this machine: what runs in their containers is needed here too."""
    name = options.project or project.config.project
    strangers = options.project is None
    going_on = [run for run in runs if run.going_on]
    busy = {run.run_id for run in going_on}.union(*(usage.running for usage in usages))
    platforms = {platform for run in going_on for platform in run.platforms}
    for usage in usages:
        with _engine_errors():
            items = (
                *container_items(usage, name, busy),
                *image_items(usage, name, platforms, strangers=strangers),
                *cache_items(usage, name, platforms, last_runs(usage)),
            )
        yield Place(name=f"Docker Engine of {usage.machine}", items=items)
    work = work_items(runs, name, busy, strangers=strangers)
    caches = host_cache_items(name, platforms)
    yield Place(name=THIS_MACHINE, items=(*caches, *results_items(runs, name, busy), *work))


def _print_removed(choice: Choice, failure: str | None, *, dry_run: bool) -> None:
    what = _described(choice.item)
    if failure:
        print(f"  cannot remove {what}: {failure}")
    else:
        print(f"  {'would remove' if dry_run else 'removed'} {what}: {choice.reason}")


def _json(place: Place, choice: Choice, failure: str | None) -> dict[str, object]:
    return {
        "place": place.name,
        "kind": choice.item.kind,
        "name": printable(choice.item.name),
        "bytes": choice.item.size_bytes,
        "last_used": choice.item.used.isoformat(),
        "removed": choice.removed and failure is None,
        "reason": choice.reason,
        "failure": failure,
    }


def _failure(item: Item) -> str | None:
    """Remove an item; why that cannot be done stops no other."""
    try:
        item.remove()
    except (CiError, *ERRORS) as error:
        return printable(explain(error))
    return None


def _described(item: Item) -> str:
    """``image infini-ci/cpu:0123, 1.5 GB, last used 20 days ago``."""
    days = (datetime.now(UTC) - item.used) / timedelta(days=1)
    return f"{item.kind} {printable(item.name)}, {decimal(item.size_bytes)}, last used {_ago(days)}"


def _ago(days: float) -> str:
    return f"{counted(round(days), 'day')} ago" if days >= 1 else "today"


def _print_kept(kept: Sequence[Choice]) -> None:
    for (kind, reason), group in groupby(
        sorted(kept, key=lambda choice: (list(Kind).index(choice.item.kind), choice.reason)),
        key=lambda choice: (choice.item.kind, choice.reason),
    ):
        sizes = [choice.item.size_bytes for choice in group]
        print(f"  kept {_counted(kind, len(sizes))}, {decimal(sum(sizes))}: {reason}")


def _counted(kind: Kind, count: int) -> str:
    """``results of 2 runs``, ``2 images``."""
    if kind is Kind.RESULTS:
        return f"results of {counted(count, 'run')}"
    return counted(count, kind)
