"""``python -m ci capacity``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ci.commands.options import (
    add_format,
    add_platforms,
    add_project,
    add_results,
    platform_name,
    whole_number,
)
from ci.commands.reading import reading_store
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.model.fields import MOST_SHARDS
from ci.util.text import join_names, near_match

if TYPE_CHECKING:  # they import NumPy, pydantic, SimPy and SQLAlchemy
    from ci.analysis.capacity import Simulation
    from ci.analysis.workload import Workload
    from ci.report.capacity_report import Goal

    Number = TypeVar("Number", int, float)

RUNS = 100  # so many of the newest are read by default, which takes two seconds
MOST_HOSTS = 10_000
SECONDS = {"s": 1, "m": 60, "h": 3600}
MOST_TRIED = 16  # shards that --within suggests; the largest machines have 16 devices
ALL = ""  # the name of a number for all platforms
SIMPY_REMEDY = (
    "Install it: pip install 'simpy~=4.1' (the dependency group `capacity` of pyproject.toml)."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Estimate how long commits wait for hosts, how long until their verdict, and how many hosts"
        " they use. A model of the queues is simulated with the times of recorded runs. Commits"
        " arrive at random, and each needs a host of every platform."
    )
    add_platforms(
        parser,
        "platforms that each commit needs (default: those of the latest runs)",
    )
    parser.add_argument(
        "--hosts",
        type=_by_platform(whole_number(1, MOST_HOSTS)),
        metavar="NAME=N,...",
        help="hosts of platforms, such as nvidia=2,ascend=1, or one number for all (default: 1, or"
        " that of --shards)",
    )
    parser.add_argument(
        "--within",
        type=_duration,
        metavar="TIME",
        help="find the least hosts with which 95 of 100 commits have their verdict within this"
        " time: 900s, 15m, 1h",
    )
    parser.add_argument(
        "--commits-per-hour",
        type=_number(0.001, 1_000),
        metavar="X",
        help="mean number of commits in an hour (default: that of the recorded runs)",
    )
    parser.add_argument(
        "--hit-rate",
        type=_number(0, 1),
        metavar="X",
        help="share of the jobs with a warm compiler cache, from 0 to 1 (default: as recorded)",
    )
    parser.add_argument(
        "--suite-scale",
        type=_number(0, 1_000),
        default=1.0,
        metavar="X",
        help="length of the suite in relation to the recorded one: 2 is twice as long (default: 1)",
    )
    parser.add_argument(
        "--shards",
        type=whole_number(1, MOST_SHARDS),
        default=1,
        metavar="N",
        help="share the tests of each job between N hosts, all of which it holds all the time"
        " (default: 1)",
    )
    parser.add_argument(
        "--price",
        type=_by_platform(_number(0, 1e6)),
        metavar="NAME=X,...",
        help="price of an hour of a host, by platform, or one for all",
    )
    add_project(parser)
    parser.add_argument(
        "--last",
        type=whole_number(1),
        default=RUNS,
        metavar="N",
        help=f"use only the last N runs (default: {RUNS})",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=1,
        metavar="N",
        help="simulate other commits (default: 1); the same seed gives the same answer",
    )
    add_format(parser, "table", "markdown", "json")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show the queues for the hosts of ``--hosts``, or for the least that ``--within`` needs."""
    if options.within is not None and options.hosts:
        message = "--within: cannot be combined with --hosts"
        raise UsageError(message, remedy="Leave out one of them.")
    try:
        import simpy  # noqa: F401  # optional: only this command needs it
    except ModuleNotFoundError:
        message = "capacity: the package simpy is not installed"
        raise InfrastructureError(message, remedy=SIMPY_REMEDY) from None
    from ci.analysis.capacity import Demand, Simulation
    from ci.analysis.workload import Scenario, find_jobs
    from ci.report.capacity_report import CapacityReport

    project, rate, workloads = _read(options)
    names = [it.platform for it in workloads]
    hosts = _of_each("--hosts", options.hosts, names, options.shards)
    prices = _of_each("--price", options.price, names, 0.0) if options.price else {}

    def model(shards: int) -> Simulation:
        scenario = Scenario(
            hit_rate=options.hit_rate, suite_scale=options.suite_scale, shards=shards
        )
        jobs = find_jobs(workloads, scenario)
        demand = Demand(jobs=jobs, commits_per_hour=rate, shards=shards, seed=options.seed)
        return Simulation(demand)

    simulated = model(options.shards)
    goal = None
    if options.within is not None:
        goal = _set_goal(simulated, model, options.within)
        least = {name: simulated.demand.least_hosts(name) for name in names}
        hosts = simulated.hosts_within(options.within) or least
    elif few := [name for name in names if hosts[name] < options.shards]:
        message = f"--hosts: got {hosts[few[0]]} for {few[0]}, expected at least {options.shards}"
        raise UsageError(message, remedy="Each job holds as many hosts as it has shards.")
    CapacityReport(
        project=project,
        capacity=simulated.capacity(hosts),
        workloads=workloads,
        goal=goal,
        prices=prices,
    ).show(options.format)
    return ExitCode.PASSED


def _read(options: argparse.Namespace) -> tuple[str, float, list[Workload]]:
    """Read the project, the commits per hour and the recorded runs of the platforms."""
    from ci.analysis.level_changes import IN_USE
    from ci.analysis.platform_history import find_project
    from ci.analysis.workload import read_workloads, recorded_rate

    with reading_store(options.results) as store:
        project = find_project(store, None, options.project)
        for name in options.platforms:
            find_project(store, name, project)
        heads = store.heads(project=project, last=options.last)
        in_use = sorted({name for head in heads[:IN_USE] for name in head.begun})
        rate = options.commits_per_hour or recorded_rate(heads)
        if rate is None:
            message = "--commits-per-hour: got none, and the store has too few runs to derive it"
            raise UsageError(message, remedy="Set it: --commits-per-hour 2")
        names = dict.fromkeys(options.platforms or in_use)
        return project, rate, read_workloads(store, heads, names)


def _set_goal(simulated: Simulation, model: Callable[[int], Simulation], limit_s: float) -> Goal:
    from ci.report.capacity_report import Goal

    met, shards = simulated.is_possible(limit_s), None
    with suppress(UsageError):  # no records show what shards would change
        tried = () if met else range(simulated.demand.shards + 1, MOST_TRIED + 1)
        shards = next((it for it in tried if model(it).is_possible(limit_s)), None)
    return Goal(limit_s=limit_s, met=met, alone=simulated.alone(), shards=shards)


def _of_each(
    option: str, given: Mapping[str, Number] | None, names: Sequence[str], default: Number
) -> dict[str, Number]:
    """The number of each platform, where ``given`` may have one for all under the empty name."""
    given = given or {}
    if unknown := [name for name in given if name and name not in names]:
        hint = near_match(unknown[0], names)
        message = (
            f"{option}: got platform '{unknown[0]}', expected one of {join_names(names)}{hint}"
        )
        raise UsageError(message, remedy="Name platforms that the commits need.")
    return {name: given.get(name, given.get(ALL, default)) for name in names}


def _by_platform(number: Callable[[str], Number]) -> Callable[[str], dict[str, Number]]:
    """An argparse type for ``nvidia=2,ascend=1``, or for one number under the empty name."""

    def numbers(text: str) -> dict[str, Number]:
        pairs = [word.rpartition("=") for word in text.split(",")]
        found = {platform_name(name): number(value) for name, _, value in pairs}
        if len(found) < len(pairs) or (ALL in found and len(found) > 1):
            message = f"got '{text}', expected one number, or one for each platform: cpu=1,nvidia=2"
            raise argparse.ArgumentTypeError(message)
        return found

    return numbers


def _number(least: float, most: float) -> Callable[[str], float]:
    """An argparse type for a number within bounds."""

    def number(text: str) -> float:
        with suppress(ValueError):
            if text.isascii() and least <= float(text) <= most:
                return float(text)
        message = f"got '{text}', expected a number from {least:g} to {most:,g}"
        raise argparse.ArgumentTypeError(message)

    return number


def _duration(text: str) -> float:
    if found := re.fullmatch(r"(\d{1,5}(?:\.\d{1,3})?)([smh])", text, re.ASCII):
        return float(found[1]) * SECONDS[found[2]]
    raise argparse.ArgumentTypeError(f"got '{text}', expected a time such as 900s, 15m or 1h")
