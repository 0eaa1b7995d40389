"""``results.json``: versioned models, written atomically and read back.

To add a field, add it at the end of its model with a default for older results, and increase
``SCHEMA_VERSION``. Nothing else needs a change: the store keeps these models as documents, and the
exported table of the stages has a column for each field that is a text, a number or a flag. If the
name or meaning of a field changes, add a ``model_validator(mode="before")`` that converts the older
form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    computed_field,
    field_validator,
    model_validator,
)

from ci.errors import UsageError
from ci.model.outcomes import Outcome
from ci.model.platforms import PLATFORMS
from ci.model.schema import schema_text
from ci.protocol.distributions import MOST_DISTRIBUTIONS, WHEEL_SUFFIX
from ci.util.lines import DEEPEST, LARGEST_INTEGER, LONGEST_SECONDS, is_deep
from ci.util.text import join_names, make_storable, near_match, shorten

# 1 had no counts of overloads, 2 no simulated devices, 3 no builds, 4 no branches and ancestors,
# 5 no failures, 6 no contracts of failures, 7 no shards, 8 no codes of evidence and notes,
# 9 no benchmarks, 10 no distributions
SCHEMA_VERSION = 11
OLD_KIND = " (simulated)"  # the end of such labels in results before version 6
RUN_ID = re.compile(r"\d{8}T\d{6}Z-(?:[0-9a-f]{8}|nogit)-[0-9a-f]{4}", re.ASCII)
# File in a platform's results: the process of the host engine's agent, which holds its lock.
HOST_LOCK = "host.lock"
POOL_RECORD = "pool.json"  # the host of a platform in a pool, until its results are here


# Bounds of a document, which a stranger may have written. All results of this program are within.
# Bytes of results.json; one of seven platforms has 100,000, and 1.3 million more for each 5,000
# benchmarks.
LARGEST_DOCUMENT = 1 << 25
DEEPEST_DOCUMENT = 2 * DEEPEST  # levels; an environment is within it, and has DEEPEST by itself
SHOWN_FAULTS = 3  # of a document: the first ones show what kind of file it is
MOST_STAGES = 1000  # of a platform; ours has three, and a report takes 2 ms for each
LONGEST_NAME = 64  # characters, as in ci.yaml; also the length of the store's columns
LONGEST_SUM = LONGEST_SECONDS * MOST_STAGES
LONGEST_BRANCH = 255  # characters; the longest name of a file, which a branch is in git
MOST_ANCESTORS = 200  # of a commit; two months of a project with three merges a day
MAIN_BRANCHES = ("main", "master")  # the usual names, where neither git nor a CI has one
MOST_SHARDS = 64  # of a platform; the largest machines have 16 devices
MOST_FAILURES = 20  # of a platform; its counts say how many there are
LONGEST_MESSAGE = 300  # characters of a failure's message
MOST_BENCHMARKS = 5000  # of a platform
LONGEST_FILE = 255  # characters of a file's name
MOST_LIBRARIES = 100  # that a distribution needs
LONGEST_BENCHMARK = 300  # characters of its name
LONGEST_UNIT = 16  # characters of a unit
LARGEST_VALUE = 1e30  # of a benchmark: squares of it are still numbers
LONGEST_TEST = 4000  # characters of a node id, which repeats the parameters
LONGEST_SELECTION = 30  # characters of the selected operators in a label
MOST_PARENTS = 64  # of a commit; git's own octopus merges have fewer
# Of the calendar, without the days that another time zone moves into a year that does not exist.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def _check_name(name: str, longest: int = LONGEST_NAME) -> str:
    if len(name) > longest:
        raise ValueError(f"got {len(name):,} characters, expected at most {longest}")
    if not name.isprintable():
        raise ValueError(f"got {name!r}, expected printable characters on one line")
    return name


def _check_moment(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("got a time without a zone, expected one with a zone")
    if not EARLIEST <= moment <= LATEST:
        raise ValueError(f"got {moment}, expected a time from {EARLIEST:%Y} to {LATEST:%Y}")
    return moment


def _check_environment(value: Any) -> Any:
    if is_deep(value, DEEPEST_DOCUMENT):
        raise ValueError(f"nested more than {DEEPEST_DOCUMENT} deep")
    return make_storable(value)


Text = Annotated[str, BeforeValidator(make_storable)]
Environment = Annotated[dict[str, JsonValue], BeforeValidator(_check_environment)]
Name = Annotated[Text, AfterValidator(_check_name)]
Branch = Annotated[Text, AfterValidator(partial(_check_name, longest=LONGEST_BRANCH))]
CommitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")]
# Strict: the text "12" is no measure, nor is true.
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_INTEGER)]
ExitStatus = Annotated[int, Field(strict=True, ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Seconds = Annotated[float, Field(strict=True, ge=0, le=LONGEST_SUM)]
Moment = Annotated[datetime, AfterValidator(_check_moment)]


class _Word(StrEnum):
    """A word of the documents: ``not_run``."""

    @property
    def shown(self) -> str:
        """``not run``."""
        return self.replace("_", " ")


class Product(_Word):
    """The verdict on the product."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"  # the run began, but its results prove neither of the above
    NOT_RUN = "not_run"

    @property
    def is_final(self) -> bool:
        """Whether the product was judged; otherwise `--resume` runs the platform again."""
        return self in (Product.PASSED, Product.FAILED)


class Harness(_Word):
    """How the machinery around the product ended: engine, container, agent, processes."""

    CLEAN = "clean"
    EXIT_AFTER_SUMMARY = "exit_after_summary"
    CRASHED = "crashed"
    OOM_KILLED = "oom_killed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    INFRASTRUCTURE = "infrastructure"


class Grade(StrEnum):
    """How certain a piece of evidence is."""

    FACT = "fact"
    LIKELY = "likely"
    UNKNOWN = "unknown"


class _Model(BaseModel):
    # NaN and infinity would make a history useless. Most commands use few models: to prepare all
    # takes 0.1 CPU-s.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


class Evidence(_Model):
    """One thing that was found: a reason for a verdict, or a note in the table."""

    grade: Grade
    """How sure it is: a fact, likely, or unknown."""
    text: Text
    """What was found, as a sentence."""
    code: Name | None = None
    """What kind of sentence it is; null in older results. The codes are stable."""
    parameters: Environment = Field(default_factory=dict)
    """What the sentence inserts into its text; of a list, at most 20 items."""


class Verdict(_Model):
    """The verdicts on the product and on the harness, judged separately."""

    product: Product
    """Whether the library was built and passed its tests."""
    harness: Harness
    """What happened to the process, the container or the machine that ran the tests."""
    evidence: tuple[Evidence, ...]
    """The reasons for both."""

    @property
    def reason(self) -> str | None:
        """The text of the first evidence; results from elsewhere may have none."""
        return self.evidence[0].text if self.evidence else None


class PytestResult(_Model):
    """Counts from the per-test log; ``seconds`` and ``summary`` as pytest printed them.

    If the per-test log is lost, the counts come from the summary.
    """

    passed: Count
    """Tests that passed."""
    failed: Count
    """Tests that failed. One with several failed subtests counts once."""
    errors: Count
    """Tests whose setup or teardown failed, and files that could not be collected."""
    skipped: Count
    """Tests that were skipped."""
    xfailed: Count
    """Tests that failed as expected."""
    xpassed: Count
    """Tests that passed although a failure was expected."""
    warnings: Count
    """Warnings that pytest counted."""
    deselected: Count | None
    """Always null: no log records it. ``summary`` has pytest's own count."""
    seconds: Seconds | None
    """Duration in pytest's closing line."""
    summary: Text | None
    """pytest's closing line, verbatim; with shards, the line that one process would print."""

    @property
    def bad(self) -> int:
        """Tests and files that failed or had an error."""
        return self.failed + self.errors

    @property
    def tests(self) -> int:
        """All tests that were collected and not deselected."""
        return self.bad + self.passed + self.skipped + self.xfailed + self.xpassed

    @property
    def executed_share(self) -> float | None:
        """The share of the tests that were not skipped; ``None`` without tests."""
        return 1 - self.skipped / self.tests if self.tests else None


class OverloadCount(_Model):
    """Counts of operator overloads on one slot and device."""

    slot: int
    """Number of the implementation: 0 to 7 native and vendor code, 8 PyTorch, 9 Triton."""
    device: Text
    """Device type of torch, such as ``cpu`` or ``npu``."""
    active: Count
    """Overloads that have this slot on the requested device."""
    executed: Count
    """Active overloads for which at least one test ran a sample on this slot and device."""
    passed: Count
    """Executed overloads of which a test passed and none failed."""
    simulated: bool = False
    """Whether the device is simulated."""
    kernels: dict[str, Count] = Field(default_factory=dict)
    """Passed overloads on a simulated device, by the kernels it has for them."""


class StageResult(_Model):
    """The cost of a stage."""

    name: Name
    """Name of the stage; ``image`` and ``sync`` are the engine's own."""
    seconds: Seconds | None
    """Wall seconds, on a monotonic clock."""
    cpu_user_s: Seconds | None = None
    """CPU seconds in user code, of the stage's whole process group."""
    cpu_system_s: Seconds | None = None
    """CPU seconds in the kernel, of the stage's whole process group."""
    peak_rss_bytes: Count | None = None
    """Largest resident memory of one of its processes."""
    exit_code: ExitStatus | None
    """Exit code of the command; null where the stage did not start or has no known end."""
    in_total: bool
    """Whether the seconds are part of ``total_s``."""


class BuildResult(_Model):
    """Figures of the build; ``None``: its logs and artifacts do not show the figure."""

    configure_s: Seconds | None = None
    """Seconds that CMake reports for configuration and generation."""
    compile_s: Seconds | None = None
    """Wall seconds in which something was compiled."""
    link_s: Seconds | None = None
    """Wall seconds in which something was linked."""
    translation_units: Count | None = None
    """Number of translation units that were compiled."""
    wheel_bytes: Count | None = None
    """Size of the wheel."""
    generated_lines: Count | None = None
    """Lines of the generated source."""


class Failure(_Model):
    """A test that failed, a stage that failed, or a suite that broke its contract."""

    stage: Name
    """The stage that failed: the one that runs the tests, or one of the build."""
    test: Annotated[Text, Field(max_length=LONGEST_TEST)] | None
    """Node id of the test, or file that could not be collected; null if it was no test."""
    outcome: Literal[Outcome.FAILED, Outcome.ERROR]
    """``error``: the setup or teardown failed, or the file could not be collected."""
    message: Annotated[Text, Field(max_length=LONGEST_MESSAGE)] | None
    """First assertion line with what differs, or the line of the stage's log that names the error;
    null if there is none."""
    contract: Text | None = None
    """File of the contract that the suite broke; null for another failure."""

    @property
    def name(self) -> str:
        """The node id of the test, ``stage install``, or the file of the contract."""
        other = f"contract {self.contract}" if self.contract else f"stage {self.stage}"
        return self.test or other


class ShardResult(_Model):
    """One of the processes that shared the tests."""

    shard: Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
    """Its number."""
    tests: Count | None
    """Tests that it was to run; null where it did not record them."""
    seconds: Seconds | None
    """Wall seconds; the longest of all shards is the time of the stage."""
    exit_code: ExitStatus | None
    """Exit code of its command; 5 where no test was left for it."""


class Direction(StrEnum):
    """Which values of a benchmark are better."""

    LOWER = "lower"
    HIGHER = "higher"


class BenchmarkResult(_Model):
    """The result of one benchmark."""

    stage: Name
    """The stage that ran it."""
    name: Annotated[
        Text, Field(min_length=1), AfterValidator(partial(_check_name, longest=LONGEST_BENCHMARK))
    ]
    """Name of the benchmark, with its parameters."""
    value: Annotated[float, Field(ge=0, le=LARGEST_VALUE)]
    """What was measured, as a median if it was repeated."""
    unit: Annotated[Name, Field(pattern=rf"^[^\s:]{{0,{LONGEST_UNIT}}}$")]
    """Unit of the value, such as ``s`` or ``images/s``; may be empty."""
    direction: Direction
    """Whether lower or higher values are better."""
    repetitions: Count | None = None
    """Number of measurements that the value is from; null where it is not known."""


class Distribution(_Model):
    """A file that pip installs: built by the run, or passed to it."""

    name: Annotated[Text, Field(max_length=LONGEST_FILE, pattern=r"^[^/]+\.(whl|tar\.gz|zip)$")]
    """Name of the file."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of its content, in hexadecimal."""
    size_bytes: Count
    """Size of the file."""
    path: Text | None = None
    """Path relative to ``results.json``; null where the file was not kept."""
    installed: bool = False
    """Whether the tests ran with exactly this file installed."""
    given: bool = False
    """Whether it was made elsewhere and passed to the run."""
    glibc: Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){1,2}$")] | None = None
    """Oldest glibc with the symbols that its compiled files need; null where they need none."""
    libraries: Annotated[tuple[Name, ...], Field(max_length=MOST_LIBRARIES)] = ()
    """Shared libraries that its compiled files need, and that are not in it."""

    @property
    def is_wheel(self) -> bool:
        return self.name.endswith(WHEEL_SUFFIX)


class PlatformResult(_Model):
    """One row of the table, with its details."""

    platform: Name
    """Name of the platform, as in ``ci.yaml``."""
    label: Text
    """Name in the table, with the kind of device and the selected operators."""
    simulated: bool = False
    """Whether the run did without the vendor's hardware."""
    built: bool | None
    """Whether the build succeeded; null where it was not tried or has no known end."""
    pytest: PytestResult | None
    """Counts of the tests; null where there is no per-test log."""
    overloads: tuple[OverloadCount, ...] = ()
    """Counts of operator overloads, where the tests record them."""
    stages: Annotated[tuple[StageResult, ...], Field(max_length=MOST_STAGES)]
    """Every stage with its cost, in order."""
    build: BuildResult | None = None
    """What the build was made of; null where nothing says so."""
    build_install_s: Seconds | None
    """Seconds in the table's ``build/install`` column."""
    pytest_s: Seconds | None
    """Seconds in the table's ``pytest`` column."""
    total_s: Seconds | None
    """Sum of the two."""
    verdict: Verdict
    """Whether the product passed, and what happened to the harness."""
    environment: Environment
    """Machine, image, tools and packages, as in ``environment.json``, the trust level, and the
    operators that the run was narrowed to (``selection``)."""
    artifacts: dict[Text, Text]
    """File name to path, relative to ``results.json``; a note counts files that are not listed."""
    failures: Annotated[tuple[Failure, ...], Field(max_length=MOST_FAILURES)] = ()
    """The first failures, in the order of the logs; ``pytest`` counts all of them."""
    shards: Annotated[tuple[ShardResult, ...], Field(max_length=MOST_SHARDS)] = ()
    """The processes that shared the tests; empty where one ran all of them."""
    findings: tuple[Evidence, ...] = ()
    """Notes in the table, each with its code and its parameters."""
    benchmarks: Annotated[tuple[BenchmarkResult, ...], Field(max_length=MOST_BENCHMARKS)] = ()
    """Results of the benchmarks, in the order of their files."""
    distributions: Annotated[tuple[Distribution, ...], Field(max_length=MOST_DISTRIBUTIONS)] = ()
    """The wheels and source distributions that the run built or was given, by name."""

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorated properties
    @property
    def notes(self) -> tuple[Text, ...]:
        """The texts of ``findings``."""
        return tuple(it.text for it in self.findings)

    @model_validator(mode="before")
    @classmethod
    def _convert_notes(cls, document: Any) -> Any:
        """Make findings of notes, which were texts alone before version 9."""
        match document:
            case {"notes": list() | tuple() as texts, **others}:
                return {"findings": [{"grade": Grade.FACT, "text": it} for it in texts], **others}
        return document

    @model_validator(mode="before")
    @classmethod
    def _convert_label(cls, document: Any) -> Any:
        """Name the kind of device, and the selected operators, as this version does.

        Before version 6, a label did not tell a simulated device from one without any. Older
        labels also lack the selection.
        """
        match document:
            case {"simulated": True, "label": str(old), "platform": str(platform)}:
                if old.endswith(OLD_KIND):
                    label = title(old.removesuffix(OLD_KIND), platform, simulated=True)
                    document = {**document, "label": label}
        match document:
            case {"label": str(old), "environment": {"selection": {"operators": str(selected)}}}:
                if not old.endswith(f"{_selection(selected)})"):
                    document = {**document, "label": selected_title(old, selected)}
        return document

    @property
    def selected(self) -> str | None:
        """The operators that the run was narrowed to; ``None``: all, and only then it is whole."""
        operators = self.facts("selection").get("operators")
        return operators if operators and isinstance(operators, str) else None

    @property
    def asked_by(self) -> str | None:
        """The command that searched a commit with this run; ``None``: it is of the history."""
        command = self.facts("search").get("command")
        return command[:LONGEST_NAME] if command and isinstance(command, str) else None

    @property
    def kept(self) -> str | None:
        """Name of the container or work folder that stayed after the run; it may be gone now."""
        name = self.facts("engine").get("kept")
        return name if isinstance(name, str) else None

    def facts(self, *names: str) -> Mapping[str, Any]:
        """A section of the environment; empty if it was not recorded."""
        part: Any = self.environment
        for name in names:
            part = part.get(name) if isinstance(part, dict) else None
        return part if isinstance(part, dict) else {}


class Lineage(_Model):
    """The place of a commit in the history of its project, as far as its clone and CI know it.

    A line is a commit with its first parents: on a main branch, what was merged one by one.
    """

    branch: Branch | None = None
    """Branch that was tested; of a pull request, the branch it comes from."""
    main_branch: Branch | None = None
    """Main branch of the project."""
    target: Branch | None = None
    """Branch that this one will be merged into."""
    merge_commit: bool = False
    """Whether the commit merges a pull request into its target, only to test it."""
    parents: Annotated[tuple[CommitId, ...], Field(max_length=MOST_PARENTS)] = ()
    """Parents of the commit, in git's order."""
    ancestors: Annotated[tuple[CommitId, ...], Field(max_length=MOST_ANCESTORS)] = ()
    """First parents, nearest first: at most 200, fewer in a shallow clone."""
    depth: Count | None = None
    """Number of commits on the line, this one included; null in a shallow clone."""
    merge_base: CommitId | None = None
    """Newest commit that the branch shares with its target; of the main branch, with that of the
    remote: another one than the run's was not pushed when it began."""

    @property
    def tip(self) -> str | None:
        """The commit of the pull request, if another commit merges it only to test it."""
        return self.parents[1] if self.merge_commit and len(self.parents) > 1 else None


NO_LINEAGE = Lineage()


class RunResult(_Model):
    """The whole of ``results.json``."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    """Version of this format. Older versions load."""
    run_id: Name
    """Name of the run, and of its folder: start time, commit, random digits."""
    project: Name
    """Name of the project, as in ``ci.yaml``."""
    commit: Name | None
    """Commit of the source; null where it is not a git checkout."""
    dirty: bool
    """Whether the source had uncommitted changes."""
    started_at: Moment
    """When the run started, in UTC."""
    finished_at: Moment
    """When the run finished, in UTC."""
    engine: Name
    """Engine or engines that ran it."""
    platforms: Annotated[tuple[PlatformResult, ...], Field(min_length=1)]
    """One row of the table each."""
    lineage: Lineage = NO_LINEAGE
    """Branch and ancestors of the commit."""

    @field_validator("schema_version", mode="after")
    @classmethod
    def _convert_version(cls, _: int) -> int:
        """Convert the version: results that were read must be comparable, whatever their age."""
        return SCHEMA_VERSION

    def to_json(self) -> str:
        # Escapes alone: a terminal obeys some characters outside of ASCII.
        return self.model_dump_json(indent=2, ensure_ascii=True) + "\n"

    def platform(self, name: str) -> PlatformResult:
        """The row of a platform; raises ``UsageError`` if the run has none."""
        results = {result.platform: result for result in self.platforms}
        if name in results:
            return results[name]
        hint = near_match(name, results)
        raise UsageError(f"run {self.run_id} has {', '.join(results)}, not '{name}'{hint}")


def results_schema() -> str:
    """Return the JSON schema of ``results.json``, which the files of all versions match."""
    return schema_text(RunResult, "serialization", "results.json")


_NO_NUMBER = ("float_type", "int_type")  # faults


def parse_run(document: Any) -> RunResult:
    """Read a run; raises ``ValueError`` with its faults, the version first if it does not fit."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"schema_version: got {version!r:.100}, expected 1 to {SCHEMA_VERSION}")
    if version > SCHEMA_VERSION:
        raise ValueError(f"got results of version {version}, expected at most {SCHEMA_VERSION}")
    try:
        return RunResult.model_validate(document)
    except ValidationError as error:
        raise ValueError(describe_faults(error)) from error


def describe_faults(error: ValidationError) -> str:
    """The first faults of a document: ``platforms.0.total_s: Input should be ..., got inf``."""
    faults = []
    for fault in error.errors(include_url=False):
        place, got = ".".join(map(str, fault["loc"])), fault["input"]
        is_shown = isinstance(got, int | float | None) or fault["type"] in _NO_NUMBER
        shown = f", got {got!r:.100}" if is_shown else ""
        message = fault["msg"].removeprefix("Value error, ")  # raised by a check of a model
        faults.append(f"{place}: {message}{shown}" if place else message)
    return join_names(faults, SHOWN_FAULTS)


def title(label: str, platform: str, *, simulated: bool) -> str:
    """The display name of a platform, or of its results."""
    if not simulated:
        return label
    kind = "compiled only" if is_compiled_only(platform, simulated=True) else "simulated device"
    return f"{label} ({kind})"


def selected_title(label: str, selected: str | None) -> str:
    """``CPU (selected add,mul)``; the label alone if all operators are built."""
    if not selected:
        return label
    begin = f"{label[:-1]}; " if label.endswith(")") else f"{label} ("
    return f"{begin}{_selection(selected)})"


def _selection(selected: str) -> str:
    return f"selected {shorten(selected, LONGEST_SELECTION)}"


def is_compiled_only(platform: str, *, simulated: bool) -> bool:
    """Whether a run goes without the device, and no simulated device can replace it."""
    known = PLATFORMS.get(platform)  # results of other versions may have other platforms
    return simulated and known is not None and not known.is_simulable


def device_kind(*, simulated: bool) -> str:
    """The word for the kind of device in messages: ``simulated`` or ``real``."""
    return "simulated" if simulated else "real"


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """The environment that the stages ran in; for the host engine a virtual environment."""

    reference: str
    digest: str | None
    built: bool
    seconds: float
    reason: str  # "cached", or why it was built
    base: str | None = None  # its base image
    base_digest: str | None = None
    requirements: str | None = None  # digest of what the host engine's environment was made of


@dataclass(frozen=True, kw_only=True)
class ExecutionFacts:
    """Facts from the engine about a run, in addition to the files in ``plan.results``."""

    engine: str
    engine_version: str | None = None
    image: ImageFacts | None = None
    sync_seconds: float = 0.0
    exit_code: int | None = None  # of the container or the agent
    oom_killed: bool = False
    lost: bool = False  # the agent's result was not received
    interrupted: bool = False  # by the caller, with Ctrl-C or SIGTERM
    ended_by: str | None = None  # the request of another program that ended the container
    unreadable_lines: int = 0  # on standard output, where the agent prints its events
    longest_line: int = 0  # bytes of the longest of them, if it exceeds the limit for an event
    wrapper_seconds: float = 0.0  # wall time of the whole call
    notes: tuple[str, ...] = ()

    @property
    def may_run(self) -> bool:
        """Whether what the engine lost may still run."""
        return self.lost and self.exit_code is None
