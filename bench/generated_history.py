"""Generates a history of release validations of a library, always the same one for a seed.

``python -m bench.generated_history FOLDER`` saves it into the store of a folder, to try a change of
``compare`` or ``history`` on it. 2,000 runs take 20 minutes.

Every run has a few tests that fail once, flaky tests, and noise in all durations. Over the whole
history the suite grows, tests begin to pass or to skip, compilers and torch are updated, caches are
sometimes cold, and some stages become permanently more expensive.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from pydantic import JsonValue

from ci.facts.sentences.on_rows import full_suite, overloads_executed
from ci.model.details import BuildDetails, Details, Unit, UnitKind
from ci.model.fields import MOST_ANCESTORS
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.platforms import PLATFORMS
from ci.model.results import (
    BuildResult,
    Lineage,
    OverloadCount,
    PlatformResult,
    PytestResult,
    RunResult,
    StageResult,
)
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict
from ci.store.folder import default_url
from ci.store.store import Store

PROJECT = "infini-ops"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
BETWEEN_RUNS = timedelta(hours=12)
# Seconds of a cold install and of pytest, as one team published them for these seven platforms. The
# goals are for seven platforms, independent of the table of platforms.
PUBLISHED = {
    "cpu": (620, 150),
    "nvidia": (889, 182),
    "iluvatar": (629, 153),
    "metax": (1301, 245),
    "cambricon": (2055, 469),
    "moore": (2019, 244),
    "ascend": (1041, 246),
}
DTYPES = ("bfloat16", "bool", "complex64", "float16", "float32", "float64", "int32", "int64")
SLOTS = (0, 8)
PINNED = "cpu"  # its compiler and torch never change, so its series are as long as the history
COMPILERS = ("g++ 11.4.0", "g++ 12.2.0", "g++ 13.1.0", "g++ 14.2.0")
TORCHES = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0")
SKIP_REASONS = ("no sample", "dtype is not supported", "no kernel", "not in this build")
PASSING = 0.55  # share of tests; the others skip
FLAKY = 0.05  # probability that a flaky test fails
GROWTH = 0.06  # of the suite over the whole history
BRANCH_EVERY = 4  # runs, of which the last is one of a pull request: a third of those of main
VARIANTS = 4  # of every test, with different durations; making all of them again takes 1.2 µs each
NOISE = 0.03  # the middle level of bench.changes
WARM = 0.12  # as a share of the time of a cold build
UNITS = 48  # of a build; an order of magnitude, not a measurement
DEAR_UNITS = 4  # new units in the last step
# Where in the history, of which stage, by which factor. The last step is recent enough to be news.
STEPS = ((0.2, "install", 1.10), (0.45, "pytest", 1.15), (0.7, "install", 0.9))
LAST_STEP = (0.99, "install", 1.2)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size of a history; ``tests`` is the number on one platform in its middle."""

    runs: int = 2_000
    tests: int = 17_000
    platforms: tuple[str, ...] = tuple(PUBLISHED)


GeneratedRun = tuple[RunResult, dict[str, Details]]


def history(scale: Scale, seed: int = 8) -> Iterator[GeneratedRun]:
    """Generate every run with its details, oldest first."""
    random = Random(seed)  # noqa: S311
    suites = {name: _Suite(name, scale, random) for name in scale.platforms}
    line: list[str] = []
    for index in range(scale.runs):
        if index % BRANCH_EVERY == BRANCH_EVERY - 1:
            commit, lineage = _branch_commit(index, line)
        else:
            if index % 5 or not index:  # every fifth run repeats the commit before
                line.append(_commit_id(str(index)))
            commit, lineage = line[-1], lineage_of("main", line)
        parts = {}
        for name, suite in suites.items():
            suite.develop(index)
            parts[name] = _platform(name, suite.outcomes(), index, index / scale.runs, random)
        started = BEGIN + index * BETWEEN_RUNS
        run = RunResult(
            run_id=f"{started:%Y%m%dT%H%M%SZ}-{commit[:8]}-{index:04x}",
            project=PROJECT,
            commit=commit,
            dirty=False,
            started_at=started,
            finished_at=started + timedelta(hours=1),
            engine="docker",
            platforms=tuple(result for result, _ in parts.values()),
            lineage=lineage,
        )
        yield run, {name: details for name, (_, details) in parts.items()}


def _commit_id(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def lineage_of(branch: str, line: Sequence[str], **more: Any) -> Lineage:
    """The lineage of the last commit of a line, the oldest commit first."""
    ancestors = tuple(line[-2 : -MOST_ANCESTORS - 2 : -1])
    parents, depth = ancestors[:1], len(line)
    return Lineage(
        branch=branch,
        main_branch="main",
        parents=parents,
        ancestors=ancestors,
        depth=depth,
        **more,
    )


def _branch_commit(index: int, line: list[str]) -> tuple[str, Lineage]:
    """The only commit of a branch that leaves main at its newest commit."""
    commit, name = _commit_id(f"change {index}"), f"change-{index}"
    return commit, lineage_of(name, [*line, commit], target="main", merge_base=line[-1])


class _Suite:
    """The tests of one platform, which change from run to run."""

    def __init__(self, platform: str, scale: Scale, random: Random) -> None:
        self._device = PLATFORMS[platform].torch_device
        self._random = random
        self._variants: list[tuple[TestOutcome, ...]] = []
        self._overloads = 0
        per_overload = len(DTYPES) * len(SLOTS)
        begin = round(scale.tests * (1 - GROWTH / 2) / per_overload)
        self._until_next = max(1, round(scale.runs * per_overload / (scale.tests * GROWTH)))
        for _ in range(max(1, begin)):
            self._add_overload()
        self._flaky = random.sample(range(len(self._variants)), 3)

    def develop(self, index: int) -> None:
        """Apply the permanent changes of one day's commits."""
        if index % self._until_next == self._until_next - 1:
            self._add_overload()
        if index % 5 == 1:
            place = self._random.randrange(len(self._variants))
            [test, *_] = self._variants[place]
            passes = test.outcome is Outcome.PASSED
            self._variants[place] = self._make_outcomes(test.node_id, passed=not passes)

    def outcomes(self) -> list[TestOutcome]:
        """The outcomes of one run: some tests fail, each with its own message."""
        chosen = self._random.randbytes(len(self._variants))
        tests = [some[byte % VARIANTS] for some, byte in zip(self._variants, chosen, strict=True)]
        failing = [place for place in self._flaky if self._random.random() < FLAKY]
        for place in [*failing, self._random.randrange(len(tests))]:
            if tests[place].outcome is Outcome.PASSED:
                tests[place] = self._failure(tests[place])
        return tests

    def _add_overload(self) -> None:
        self._overloads += 1
        overload = f"operator_{self._overloads * 7919 % 100_003:05}.out"  # in no particular order
        for dtype, slot in product(DTYPES, SLOTS):
            name = f"tests/ops/test_torch_ops.py::test_overload[{overload}-{dtype}"
            name += f"-{self._device}-slot{slot}]"
            self._variants.append(self._make_outcomes(name, passed=self._random.random() < PASSING))

    def _make_outcomes(self, name: str, *, passed: bool) -> tuple[TestOutcome, ...]:
        reason = None if passed else self._random.choice(SKIP_REASONS)
        typical = self._random.lognormvariate(math.log(0.002 if passed else 0.0005), 1.2)
        return tuple(
            TestOutcome(
                node_id=name,
                outcome=Outcome.PASSED if passed else Outcome.SKIPPED,
                seconds=typical * self._random.lognormvariate(0, 0.15),
                reason=reason and f"{reason}: not available on {self._device}",
                skip_reason=reason,
            )
            for _ in range(VARIANTS)
        )

    def _failure(self, test: TestOutcome) -> TestOutcome:
        random = self._random
        message = (
            "AssertionError: Tensor-likes are not close!\n\n"
            f"Mismatched elements: {random.randrange(1, 1024)} / 1024\n"
            f"Greatest absolute difference: {random.random()} at index"
            f" ({random.randrange(32)}, {random.randrange(32)}) (up to 1e-05 allowed)\n"
            f"Greatest relative difference: {random.random()} (up to 1.3e-06 allowed)"
        )
        return replace(test, outcome=Outcome.FAILED, reason=message, skip_reason=None)


def _platform(
    name: str, tests: list[TestOutcome], index: int, position: float, random: Random
) -> tuple[PlatformResult, Details]:
    device, (install, pytest) = PLATFORMS[name].torch_device, PUBLISHED[name]
    cold = index % 25 == 7
    build = _build(install * _level("install", position), position, random, cold=cold)
    units = sum(unit.seconds for unit in build.units)
    stages = (
        StageResult(name="image", seconds=0.3 * _noise(random), exit_code=0, in_total=False),
        StageResult(name="sync", seconds=0.3 * _noise(random), exit_code=0, in_total=False),
        _stage("generate", 1.0, random),
        _stage("install", units * 1.1, random),
        _stage("pytest", pytest * _level("pytest", position), random),
    )
    total = sum(stage.seconds or 0 for stage in stages if stage.in_total)
    pytest_s = stages[-1].seconds or 0
    counts = Counter(test.outcome for test in tests)
    found = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    summary = f"{found} in {pytest_s:.2f}s"
    result = PlatformResult(
        platform=name,
        label=PLATFORMS[name].label,
        built=True,
        pytest=PytestResult(
            **dict.fromkeys(("errors", "xfailed", "xpassed"), 0),
            passed=counts[Outcome.PASSED],
            failed=counts[Outcome.FAILED],
            skipped=counts[Outcome.SKIPPED],
            warnings=100,
            deselected=None,
            seconds=pytest_s,
            summary=summary,
        ),
        overloads=(OverloadCount(slot=8, device=device, active=1440, executed=1326, passed=1326),),
        stages=stages,
        build=BuildResult(
            configure_s=4 * _noise(random),
            compile_s=units * 0.95,
            link_s=units * 0.05,
            translation_units=len(build.units),
            wheel_bytes=4_000_000 + 1000 * len(tests),
            generated_lines=sum(build.generated.values()),
        ),
        build_install_s=total - pytest_s,
        pytest_s=pytest_s,
        total_s=total,
        verdict=Verdict(
            product=Product.FAILED if counts[Outcome.FAILED] else Product.PASSED,
            harness=Harness.CLEAN,
            evidence=(Evidence(grade=Grade.FACT, text=f"pytest: {summary}"),),
        ),
        findings=(full_suite(), overloads_executed([f"1,326 of 1,440 on {device}"])),
        environment=_environment(name, position, random, cold=cold),
        artifacts={file: f"{name}/{file}" for file in ("events.jsonl", "pytest.jsonl")},
    )
    return result, Details(tests=tests, build=build)


def _stage(name: str, seconds: float, random: Random) -> StageResult:
    return StageResult(
        name=name,
        seconds=seconds * _noise(random),
        cpu_user_s=1.8 * seconds * _noise(random) ** 0.5,
        cpu_system_s=0.1 * seconds * _noise(random),
        peak_rss_bytes=round(5e8 * _noise(random)),
        exit_code=0,
        in_total=True,
    )


def _build(seconds: float, position: float, random: Random, *, cold: bool) -> BuildDetails:
    """The last step consists of new units only; the others make all units more expensive."""
    seconds *= 1 if cold else WARM
    costs = {f"torch_backend_{number:02}": seconds / UNITS for number in range(UNITS)}
    begin, _, factor = LAST_STEP
    if position >= begin:
        added = seconds * (factor - 1) / DEAR_UNITS
        costs |= {f"triton_backend_{number:02}": added for number in range(DEAR_UNITS)}
    return BuildDetails(
        units=tuple(
            Unit(
                output=f"CMakeFiles/ops.dir/generated/{name}.cc.o",
                kind=UnitKind.COMPILE,
                seconds=cost * _noise(random),
                cached=not cold and random.random() < 0.97,
            )
            for name, cost in costs.items()
        ),
        generated={f"generated/{name}.cc": 4_000 for name in costs},
        flags=("-O2", "-fPIC", "-std=c++17"),
    )


def _level(stage: str, position: float) -> float:
    return math.prod(factor for begin, of, factor in STEPS if of == stage and position >= begin)


def _noise(random: Random) -> float:
    """A few percent, and sometimes a spike."""
    return random.lognormvariate(0, NOISE) * (1.5 if random.random() < 0.01 else 1)


def _environment(name: str, position: float, random: Random, *, cold: bool) -> dict[str, JsonValue]:
    if name == PINNED:
        position = 0
    compiler = COMPILERS[int(position * len(COMPILERS))]
    torch = TORCHES[int(position * len(TORCHES))]
    image = hashlib.sha256(f"{name} {compiler} {torch}".encode()).hexdigest()
    cache: dict[str, JsonValue] = {"tool": "ccache", "state": "cold" if cold else "warm"}
    packages: dict[str, JsonValue] = {f"package-{n}": f"{n}.{n + 1}.0" for n in range(27)}
    cache |= {"hit_rate": 0.0 if cold else 0.95 + 0.05 * random.random()}
    machine: dict[str, JsonValue] = {"architecture": "x86_64", "cores": 64, "hostname": name}
    machine |= {"cpu_model": "Intel(R) Xeon(R) Processor", "memory_bytes": 1 << 39}
    found = {"reference": f"infini-ci/{name}:{image[:16]}", "digest": f"sha256:{image}"}
    return {
        "cmake": "cmake version 4.3.0",
        "compiler": compiler,
        "compiler_cache": cache,
        "machine": machine,
        "ninja": "1.13.2",
        "packages": packages,
        "python": "3.11.2",
        "torch": torch,
        "engine": {"name": "docker", "image": {**found, "built": False}},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Save a history, and print commands that read it."""
    parser = argparse.ArgumentParser(prog="python -m bench.generated_history", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of results")
    parser.add_argument("--runs", type=int, default=Scale().runs, metavar="N")
    parser.add_argument("--tests", type=int, default=Scale().tests, metavar="N")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    run_ids = []
    with Store(default_url(options.folder)) as store:
        for run, details in history(Scale(runs=options.runs, tests=options.tests)):
            store.save(run, details)
            run_ids.append(run.run_id)
    for words in (["compare", *run_ids[-2:]], ["history"], ["history", PINNED]):
        print(shlex.join(["python", "-m", "ci", *words, "--results", str(options.folder)]))


if __name__ == "__main__":
    main()
