"""``python -m ci gc``."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby

from rich.filesize import decimal

from ci.commands.options import add_config, add_format, add_results, config_file
from ci.engines.host.leftovers import HostLeftovers
from ci.engines.leftovers import Item, ItemKind, Leftovers, Scope
from ci.engines.select import select_engine
from ci.errors import CiError, ExitCode, UsageError
from ci.plan.project import Project, load_project
from ci.store.folder import open_existing_store
from ci.upkeep.gc import (
    RemovalDecision,
    decide,
    redact_interrupted,
    result_items,
    run_folders,
    sessions,
    store_items,
)
from ci.upkeep.retention import proven_runs, retained_items
from ci.util.terminal import show, show_error
from ci.util.text import counted, strip_controls

# Chosen by judgment, not measured: a run can still be resumed after two weeks of absence, and 50 GB
# hold the images of seven platforms, which take several GB each with torch and a vendor's toolkit.
DAYS = 14.0
GIGABYTES = 50.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Remove leftovers of earlier runs: stopped containers (also those of `run --keep`), images,"
        " compiler caches,"
        " wheelhouses, results and work folders. gc removes only what this program created and"
        " labelled. It never removes anything that a current run uses, nor the latest results, nor"
        " those of runs that a decision or an attestation is about. The store keeps its rows:"
        " report, compare and history still show runs whose folders are removed. From the store it"
        " removes only runs with damaged rows, which no command can show, and by the section"
        " `retention:` of ci.yaml, if there is one, old runs."
    )
    parser.add_argument(
        "--older-than",
        type=_parse_number,
        default=DAYS,
        metavar="DAYS",
        help=f"remove what was not used for this many days (default: {DAYS:g})",
    )
    parser.add_argument(
        "--keep-size",
        type=_parse_number,
        default=GIGABYTES,
        metavar="GB",
        help="keep at most this many GB of images, and as many of compiler caches and of"
        f" wheelhouses, on each engine. The least recently used go first (default: {GIGABYTES:g})",
    )
    parser.add_argument(
        "--engine",
        metavar="ENGINE",
        help="clean up only this engine (default: the engines of all platforms)",
    )
    parser.add_argument(
        "--project",
        metavar="NAME",
        help="only items labelled with this project (default: the configured project, and leftovers"
        " of builds without a project label)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be removed")
    add_format(parser, "table", "json")
    add_config(parser)
    add_results(parser)


def _parse_number(text: str) -> float:
    try:
        value = float(text) if text.isascii() else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"got '{text}', expected a number from 0 to 1000000")
    return value


def execute(options: argparse.Namespace) -> int:
    """Decide what to remove, remove it, and print the result for each item."""
    project = load_project(config_file(options), os.environ)
    age = timedelta(days=options.older_than)
    size_bytes = round(options.keep_size * 1e9)
    engines, silent = _leftovers(project, options.engine)
    freed, images, listed = 0, False, []
    table = options.format == "table"
    for place, items in _places(options, project, engines, silent):
        decisions = decide(items, now=datetime.now(UTC), age=age, size_bytes=size_bytes)
        if table:
            show(f"{place}:" if decisions else f"{place}: nothing from this program")
        for decision in decisions:
            failure = None
            if decision.removed and not options.dry_run:
                try:
                    decision.item.remove()
                except (CiError, OSError) as fault:  # the other items are still removed
                    failure = str(fault)
            if decision.removed:
                freed += 0 if failure else decision.item.size_bytes
                images |= decision.item.kind is ItemKind.IMAGE
                if table:
                    _print_removed(decision, failure, dry_run=options.dry_run)
            listed.append(_listed(place, decision, failure))
        if table:
            _print_kept([decision for decision in decisions if not decision.removed])
    if table:
        most = " at most: images can share layers with other images" if images else ""
        show(f"{'would free' if options.dry_run else 'freed'} {decimal(freed)}{most}")
    else:
        content = {"dry_run": options.dry_run, "freed_bytes": freed, "items": listed}
        show(json.dumps(content, indent=2))
    for error in silent:
        show_error(error)
    return ExitCode.INFRASTRUCTURE if silent else ExitCode.PASSED


def _leftovers(project: Project, asked: str | None) -> tuple[tuple[Leftovers, ...], list[CiError]]:
    """What each engine of the platforms keeps, and the errors of engines without an answer.

    This machine comes last: a run in a container of an engine also needs its files here.
    """
    plans = dict.fromkeys(
        engine
        for platform in project.config.platforms
        for engine in (project.engine(platform, asked), *project.other_engines(platform, asked))
    )
    here = HostLeftovers()
    found: dict[str, Leftovers] = {}
    silent: list[CiError] = []
    for plan in plans:
        try:
            if (leftovers := select_engine(plan).leftovers()) is not None:
                found[leftovers.identity] = leftovers
        except CiError as error:
            silent.append(error)
    found.pop(here.identity, None)
    return (*found.values(), here), silent


def _places(
    options: argparse.Namespace,
    project: Project,
    engines: Sequence[Leftovers],
    silent: list[CiError],
) -> Iterator[tuple[str, tuple[Item, ...]]]:
    """The items of this program in each place, with the place's name.

    The error of a store that cannot be opened is added to ``silent``.
    """
    runs = run_folders(options.results)
    going_on, callers = [run for run in runs if run.going_on], sessions()
    scope = Scope(
        project=options.project or project.config.project,
        orphans=options.project is None,
        runs={run.path.name for run in going_on}.union(
            (it for it, lives in callers.items() if lives),
            *(engine.running for engine in engines),
        ),
        platforms={platform for run in going_on for platform in run.request.platforms},
        abandoned={it for it, lives in callers.items() if not lives},
        projects={run.path.name: run.request.project for run in runs},
    )
    if not options.dry_run:
        for note in redact_interrupted(runs, scope):
            if options.format == "table":
                show(note)
    *others, here = engines
    for engine in others:
        yield engine.place, tuple(engine.items(scope))
    try:
        results = tuple(result_items(runs, scope, proven_runs(options.results)))
    except CiError as error:
        silent.append(error)
        results = ()
    yield here.place, (*here.items(scope), *results)
    try:
        with open_existing_store(options.results) as store:
            items = list(store_items(store, scope))
            policy = project.config.retention
            if policy and scope.project == project.config.project:
                damaged = {it.name for it in items}
                now = datetime.now(UTC)
                retained = retained_items(
                    store, options.results, project.source, policy, scope, now
                )
                items += [it for it in retained if it.name not in damaged]
            if items:
                yield "the store", tuple(items)
    except UsageError:  # there is none yet
        return
    except CiError as error:
        silent.append(error)


def _print_removed(decision: RemovalDecision, failure: str | None, *, dry_run: bool) -> None:
    """``removed image infini-ci/cpu:0123, 1.5 GB, last used 20 days ago: not used for 14 days``."""
    item = decision.item
    days = (datetime.now(UTC) - item.used) / timedelta(days=1)
    ago = f"{counted(round(days), 'day')} ago" if days >= 1 else "today"
    what = f"{item.kind} {item.name}, {decimal(item.size_bytes)}, last used {ago}"
    if failure:
        show(f"  cannot remove {what}: {failure}")
    else:
        show(f"  {'would remove' if dry_run else 'removed'} {what}: {decision.reason}")


def _print_kept(kept: Sequence[RemovalDecision]) -> None:
    """``kept 2 images, 3.1 GB: used within 14 days``."""

    def group(decision: RemovalDecision) -> tuple[int, str]:
        return list(ItemKind).index(decision.item.kind), decision.reason

    for (number, reason), decisions in groupby(sorted(kept, key=group), key=group):
        kind, sizes = list(ItemKind)[number], [decision.item.size_bytes for decision in decisions]
        of_runs = f"results of {counted(len(sizes), 'run')}"
        what = of_runs if kind is ItemKind.RESULTS else counted(len(sizes), kind)
        show(f"  kept {what}, {decimal(sum(sizes))}: {reason}")


def _listed(place: str, decision: RemovalDecision, failure: str | None) -> dict[str, object]:
    return {
        "place": place,
        "kind": decision.item.kind,
        "name": strip_controls(decision.item.name),
        "bytes": decision.item.size_bytes,
        "last_used": decision.item.used.isoformat(),
        "removed": decision.removed and failure is None,
        "reason": decision.reason,
        "failure": failure,
    }
