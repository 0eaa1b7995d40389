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
    # NaN and infinity would make a history useless.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Evidence(_Model):
    """One reason for a verdict."""

    grade: Grade
    text: Text


class Verdict(_Model):
    """The verdicts on the product and on the harness, judged separately."""

    product: Product
    harness: Harness
    evidence: tuple[Evidence, ...]


class PytestResult(_Model):
    """Counts from the per-test log; ``seconds`` and ``summary`` as pytest printed them.

    If the per-test log is lost, the counts come from the summary.
    """

    passed: int
    failed: int
    errors: int
    skipped: int
    xfailed: int
    xpassed: int
    warnings: int
    deselected: int | None  # always None: no log records it; only ``summary`` may show it
    seconds: float | None
    summary: Text | None


class OverloadCount(_Model):
    """Counts of operator overloads on one slot and device.

    Attributes:
        active: Overloads that have the slot on the requested device.
        executed: Overloads of which at least one test ran a sample on this slot and device.
        passed: Executed overloads of which at least one test passed and none failed.
        kernels: Passed overloads on a simulated device, by kind of kernel.
    """

    slot: int
    device: str
    active: int
    executed: int
    passed: int
    simulated: bool = False
    kernels: dict[str, int] = Field(default_factory=dict)


class StageResult(_Model):
    """The cost of a stage; ``exit_code`` is ``None`` if it did not start or did not end."""

    name: str
    seconds: float | None
    cpu_user_s: float | None = None
    cpu_system_s: float | None = None
    peak_rss_bytes: int | None = None
    exit_code: int | None
    in_total: bool


class BuildResult(_Model):
    """Figures of the build; ``None``: its logs and artifacts do not show the figure."""

    configure_s: float | None = None  # reported by CMake, its generation included
    compile_s: float | None = None  # wall time while at least one compilation ran
    link_s: float | None = None  # wall time while at least one link ran
    translation_units: int | None = None
    wheel_bytes: int | None = None
    generated_lines: int | None = None


class PlatformResult(_Model):
    """One row of the table, with its details."""

    platform: str
    label: str
    simulated: bool = False  # a simulated device: no vendor hardware was used
    built: bool | None  # None: the build did not run, or its end is unknown
    pytest: PytestResult | None  # None: there is no per-test log
    overloads: tuple[OverloadCount, ...] = ()
    stages: tuple[StageResult, ...]
    build: BuildResult | None = None
    build_install_s: float | None
    pytest_s: float | None
    total_s: float | None
    verdict: Verdict
    notes: tuple[Text, ...]
    environment: Annotated[dict[str, JsonValue], Storable]
    artifacts: dict[Text, Text]  # file name to path, relative to results.json

    def facts(self, *names: str) -> Mapping[str, Any]:
        """A section of the environment; empty if it was not recorded."""
        part: Any = self.environment
        for name in names:
            part = part.get(name) if isinstance(part, dict) else None
        return part if isinstance(part, dict) else {}


class RunResult(_Model):
    """The whole of ``results.json``."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    run_id: str
    project: str
    commit: str | None
    dirty: bool
    started_at: datetime
    finished_at: datetime
    engine: str
    platforms: tuple[PlatformResult, ...]

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
    interrupted: bool = False
    unreadable_lines: int = 0  # on standard output, where the agent prints its events
    longest_line: int = 0  # bytes of the longest of them, if it exceeds the limit for an event
    wrapper_seconds: float = 0.0  # wall time of the whole call
    notes: tuple[str, ...] = ()
