"""``results.json``: versioned models, written atomically and read back.

To add a field, add it at the end of its model with a default for older results, and increase
``SCHEMA_VERSION``. Nothing else needs a change: the store keeps these models as documents, and the
exported table of the stages has a column for each field that is a text, a number or a flag. If the
name or meaning of a field changes, add a ``model_validator(mode="before")`` that converts the older
form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from ci.errors import ExitCode, UsageError
from ci.model.platforms import PLATFORMS
from ci.util.text import make_storable, near_match

SCHEMA_VERSION = 4  # 1 had no counts of overloads, 2 no simulated devices, 3 no builds
SIMULATED = "simulated device: no vendor hardware was used"
COMPILED_ONLY = "no device: compiled only; no vendor hardware was used"
# File in a platform's results: the process of the host engine's agent, which holds its lock.
HOST_LOCK = "host.lock"


Storable = BeforeValidator(make_storable)
Text = Annotated[str, Storable]


class Product(StrEnum):
    """The verdict on the product."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"  # the run began, but its results prove neither of the above
    NOT_RUN = "not_run"

    @property
    def is_final(self) -> bool:
        """Whether the product was judged; otherwise `--resume` runs the platform again."""
        return self in (Product.PASSED, Product.FAILED)


class Harness(StrEnum):
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
    # NaN and infinity would make a history useless. The docstring below a field is its
    # description in docs/reference/results.md.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class Evidence(_Model):
    """One reason for a verdict."""

    grade: Grade
    """How sure it is: a fact, likely, or unknown."""
    text: Text
    """What was found, as a sentence."""


class Verdict(_Model):
    """The verdicts on the product and on the harness, judged separately."""

    product: Product
    """Whether the library was built and passed its tests."""
    harness: Harness
    """What happened to the process, the container or the machine that ran the tests."""
    evidence: tuple[Evidence, ...]
    """The reasons for both."""


class PytestResult(_Model):
    """Counts from the per-test log; ``seconds`` and ``summary`` as pytest printed them.

    If the per-test log is lost, the counts come from the summary.
    """

    passed: int
    """Tests that passed."""
    failed: int
    """Tests that failed."""
    errors: int
    """Tests whose setup or teardown failed, and files that could not be collected."""
    skipped: int
    """Tests that were skipped."""
    xfailed: int
    """Tests that failed as expected."""
    xpassed: int
    """Tests that passed although a failure was expected."""
    warnings: int
    """Warnings that pytest counted."""
    deselected: int | None
    """Always null: no log records it. ``summary`` has pytest's own count."""
    seconds: float | None
    """Duration in pytest's closing line."""
    summary: Text | None
    """pytest's closing line, verbatim."""


class OverloadCount(_Model):
    """Counts of operator overloads on one slot and device."""

    slot: int
    """Number of the implementation: 0 to 7 native and vendor code, 8 PyTorch, 9 Triton."""
    device: str
    """Device type of torch, such as ``cpu`` or ``npu``."""
    active: int
    """Overloads that have this slot on the requested device."""
    executed: int
    """Active overloads for which at least one test ran a sample on this slot and device."""
    passed: int
    """Executed overloads of which a test passed and none failed."""
    simulated: bool = False
    """Whether the device is simulated."""
    kernels: dict[str, int] = Field(default_factory=dict)
    """Passed overloads on a simulated device, by the kernels it has for them."""


class StageResult(_Model):
    """The cost of a stage."""

    name: str
    """Name of the stage; ``image`` and ``sync`` are the engine's own."""
    seconds: float | None
    """Wall seconds, on a monotonic clock."""
    cpu_user_s: float | None = None
    """CPU seconds in user code, of the stage's whole process group."""
    cpu_system_s: float | None = None
    """CPU seconds in the kernel, of the stage's whole process group."""
    peak_rss_bytes: int | None = None
    """Largest resident memory of one of its processes."""
    exit_code: int | None
    """Exit code of the command; null where the stage did not start or has no known end."""
    in_total: bool
    """Whether the seconds are part of ``total_s``."""


class BuildResult(_Model):
    """Figures of the build; ``None``: its logs and artifacts do not show the figure."""

    configure_s: float | None = None
    """Seconds that CMake reports for configuration and generation."""
    compile_s: float | None = None
    """Wall seconds in which something was compiled."""
    link_s: float | None = None
    """Wall seconds in which something was linked."""
    translation_units: int | None = None
    """Number of translation units that were compiled."""
    wheel_bytes: int | None = None
    """Size of the wheel."""
    generated_lines: int | None = None
    """Lines of the generated source."""


class PlatformResult(_Model):
    """One row of the table, with its details."""

    platform: str
    """Name of the platform, as in ``ci.yaml``."""
    label: str
    """Name in the table."""
    simulated: bool = False
    """Whether the run did without the vendor's hardware."""
    built: bool | None
    """Whether the build succeeded; null where it was not tried or has no known end."""
    pytest: PytestResult | None
    """Counts of the tests; null where there is no per-test log."""
    overloads: tuple[OverloadCount, ...] = ()
    """Counts of operator overloads, where the tests record them."""
    stages: tuple[StageResult, ...]
    """Every stage with its cost, in order."""
    build: BuildResult | None = None
    """What the build was made of; null where nothing says so."""
    build_install_s: float | None
    """Seconds in the table's ``build/install`` column."""
    pytest_s: float | None
    """Seconds in the table's ``pytest`` column."""
    total_s: float | None
    """Sum of the two."""
    verdict: Verdict
    """Whether the product passed, and what happened to the harness."""
    notes: tuple[Text, ...]
    """Notes in the table."""
    environment: Annotated[dict[str, JsonValue], Storable]
    """Machine, image, tools and packages, as in ``environment.json``."""
    artifacts: dict[Text, Text]
    """File name to path, relative to ``results.json``."""

    def facts(self, *names: str) -> Mapping[str, Any]:
        """A section of the environment; empty if it was not recorded."""
        part: Any = self.environment
        for name in names:
            part = part.get(name) if isinstance(part, dict) else None
        return part if isinstance(part, dict) else {}


class RunResult(_Model):
    """The whole of ``results.json``."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    """Version of this format. Older versions load."""
    run_id: str
    """Name of the run, and of its folder: start time, commit, random digits."""
    project: str
    """Name of the project, as in ``ci.yaml``."""
    commit: str | None
    """Commit of the source; null where it is not a git checkout."""
    dirty: bool
    """Whether the source had uncommitted changes."""
    started_at: datetime
    """When the run started, in UTC."""
    finished_at: datetime
    """When the run finished, in UTC."""
    engine: str
    """Engine or engines that ran it."""
    platforms: tuple[PlatformResult, ...]
    """One row of the table each."""

    @field_validator("schema_version", mode="after")
    @classmethod
    def _convert_version(cls, _: int) -> int:
        """Convert the version: results that were read must be comparable, whatever their age."""
        return SCHEMA_VERSION

    def to_json(self) -> str:
        return self.model_dump_json(indent=2) + "\n"

    def platform(self, name: str) -> PlatformResult:
        """The row of a platform; raises ``UsageError`` if the run has none."""
        results = {result.platform: result for result in self.platforms}
        if name in results:
            return results[name]
        hint = near_match(name, results)
        raise UsageError(f"run {self.run_id} has {', '.join(results)}, not '{name}'{hint}")


def title(name: str, *, simulated: bool) -> str:
    """The display name of a platform, or of its results."""
    return f"{name} (simulated)" if simulated else name


def is_compiled_only(platform: str, *, simulated: bool) -> bool:
    """Whether a run goes without the device, and no simulated device can replace it."""
    return simulated and not PLATFORMS[platform].is_simulable


def hardware_note(platform: str) -> str:
    """The note on a run that goes without the platform's device."""
    return COMPILED_ONLY if is_compiled_only(platform, simulated=True) else SIMULATED


def device_kind(*, simulated: bool) -> str:
    """The word for the kind of device in messages: ``simulated`` or ``real``."""
    return "simulated" if simulated else "real"


# An incomplete result is an infrastructure failure only if the evidence points to the harness: the
# product itself may cause a crash or a timeout. A product that reached a configured memory limit
# is failed, not incomplete.
_INFRASTRUCTURE = frozenset({Harness.LOST, Harness.INFRASTRUCTURE, Harness.OOM_KILLED})


def exit_code(platforms: Sequence[PlatformResult]) -> ExitCode:
    """Return the exit code of a run.

    A product failure outranks an infrastructure failure: a second try of the other platforms
    cannot change it.
    """
    verdicts = [platform.verdict for platform in platforms]
    unfinished = [verdict for verdict in verdicts if verdict.product is not Product.PASSED]
    if verdicts and not unfinished:
        return ExitCode.PASSED
    if any(verdict.product is Product.FAILED for verdict in unfinished):
        return ExitCode.PRODUCT_FAILURE
    if not verdicts or any(verdict.harness in _INFRASTRUCTURE for verdict in unfinished):
        return ExitCode.INFRASTRUCTURE
    return ExitCode.PRODUCT_FAILURE


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


@dataclass(frozen=True, kw_only=True)
class ExecutionFacts:
    """Facts from the engine about a run, in addition to the files in ``plan.results``."""

    engine: str
    engine_version: str | None = None
    image: ImageFacts | None = None
    sync_seconds: float = 0.0
    exit_code: int | None = None  # of the container or the agent
    oom_killed: bool = False
    lost: bool = False  # the agent vanished without a result
    interrupted: bool = False  # by the caller, with Ctrl-C or SIGTERM
    ended_by: str | None = None  # the request of another program that ended the container
    unreadable_lines: int = 0  # on standard output, where the agent prints its events
    longest_line: int = 0  # bytes of the longest of them, if it exceeds the limit for an event
    wrapper_seconds: float = 0.0  # wall time of the whole call
    notes: tuple[str, ...] = ()
