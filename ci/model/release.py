"""What a project demands of a release: ``release:`` in ``ci.yaml``, and its file of waivers."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ci.model.fields import LONGEST_NAME, Text
from ci.model.platforms import PLATFORMS

LONGEST_REASON = 1000  # characters of a waiver's reason
MOST_PERCENT = 1000.0
LONGEST_AGE_DAYS = 3650.0
_LINE = StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST_REASON)
Percent = Annotated[float, Field(ge=0, le=MOST_PERCENT)]


class _StrictModel(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", defer_build=True, strict=True, allow_inf_nan=False
    )


class ReleaseRule(StrEnum):
    """What a release must meet, on each platform or as a whole."""

    # Of each platform, in the order of reports.
    RESULT = "result"
    REAL_DEVICE = "real-device"
    WHOLE = "whole"
    COMMIT = "commit"
    CLEAN = "clean"
    AGE = "age"
    EXECUTED = "executed"
    SKIPS = "skips"
    QUARANTINES = "quarantines"
    INSTALLED = "installed"
    BASELINE = "baseline"
    REGRESSION = "regression"
    BUILD_COST = "build-cost"
    BENCHMARKS = "benchmarks"
    SYMBOLS = "symbols"
    # Of the whole release.
    ARTIFACTS = "artifacts"
    CAPABILITIES = "capabilities"
    WAIVERS = "waivers"


OF_WHOLE_RELEASE = (ReleaseRule.ARTIFACTS, ReleaseRule.CAPABILITIES, ReleaseRule.WAIVERS)
# Without a baseline that is optional, they are informational.
OF_BASELINE = (
    ReleaseRule.BASELINE,
    ReleaseRule.REGRESSION,
    ReleaseRule.BUILD_COST,
    ReleaseRule.BENCHMARKS,
    ReleaseRule.SYMBOLS,
)
# Keys of `release:` without which a rule is not checked.
SWITCHES = {
    ReleaseRule.AGE: "oldest_days",
    ReleaseRule.SKIPS: "skips",
    ReleaseRule.INSTALLED: "installed_wheel",
    ReleaseRule.BUILD_COST: "build_cost_percent",
    ReleaseRule.BENCHMARKS: "benchmark_percent",
    ReleaseRule.SYMBOLS: "removed_symbols",
    ReleaseRule.CAPABILITIES: "unexecuted_pairs",
}


class BaselineNeed(StrEnum):
    """Whether a release needs an earlier one to be compared with."""

    REQUIRED = "required"
    OPTIONAL = "optional"


class ReleasePolicy(_StrictModel):
    """What ``python -m ci gate`` demands of a release. Rules without a limit are not checked."""

    required: Annotated[tuple[str, ...], Field(min_length=1)]
    """Platforms or groups without which there is no release: each needs a run on the real device,
    with all operators, whose build and tests passed."""
    informational: tuple[str, ...] = ()
    """Platforms or groups that are judged and shown in the same way, and decide nothing."""
    least_executed: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Smallest share of the tests that must have run, from 0 to 1: the others were skipped."""
    skips: tuple[str, ...] | None = None
    """Patterns of the only reasons for which tests may be skipped, such as ``no device*``; by
    default any. A contract is stricter: it names each test."""
    quarantined: Annotated[int, Field(ge=0)] = 0
    """Most tests of a platform that may be quarantined."""
    oldest_days: Annotated[float, Field(gt=0, le=LONGEST_AGE_DAYS)] | None = None
    """Most days since a run finished; by default any."""
    unexecuted_pairs: Annotated[int, Field(ge=0)] | None = None
    """Most pairs of an operator overload and a dtype of the tests that no platform of the release
    executed on a real device; by default any number."""
    installed_wheel: bool = True
    """Whether the tests must have run with an installed wheel, whose file the results name."""
    baseline: BaselineNeed = BaselineNeed.REQUIRED
    """``required``: without results of the last release, there is no release. ``optional``: the
    rules ``regression``, ``build-cost``, ``benchmarks`` and ``symbols`` are then not judged."""
    build_cost_percent: Percent | None = None
    """Most percent by which the CPU seconds of the build stages may exceed those of the last
    release; by default, a rise counts if ``compare`` calls it a regression."""
    benchmark_percent: Percent | None = None
    """Most percent by which a benchmark may be worse than in the last release; by default as for
    ``build_cost_percent``. With a limit, each platform must have benchmarks."""
    removed_symbols: Annotated[int, Field(ge=0)] | None = None
    """Most symbols that compiled files of the last release's wheels export, and those of this one
    do not; by default any number. With a limit, the wheels of both must have been kept."""
    tags: Annotated[str, StringConstraints(pattern=r"^[\w*?\[\]./+-]{1,64}$")] = "*"
    """Pattern of the tags of releases, such as ``v*``: the newest of them before the commit is the
    last release."""
    waivers: Annotated[str, StringConstraints(pattern=r"^[^/]")] | None = None
    """File of waivers, relative to this file; by default nothing can be waived."""

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.required, *self.informational)))

    @property
    def rules(self) -> Iterator[ReleaseRule]:
        """The rules that are checked."""
        for rule in ReleaseRule:
            switch = getattr(self, SWITCHES[rule]) if rule in SWITCHES else True
            if switch is not None and switch is not False:
                yield rule


def _check_platform(name: str) -> str:
    if name not in PLATFORMS:
        what = f"one of {', '.join(PLATFORMS)}"
        raise PydanticCustomError("expected", what, {"known": [*PLATFORMS]})
    return name


class AppliedWaiver(_StrictModel):
    """The waiver that excuses a rule."""

    reason: Annotated[Text, Field(min_length=1, max_length=LONGEST_REASON)]
    """Why the release may be published although the rule is broken."""
    owner: Annotated[Text, Field(min_length=1, max_length=LONGEST_NAME)]
    """Who answers for it."""
    until: datetime.date
    """The last day on which it holds."""


class Waiver(_StrictModel):
    """One rule that a release may break, until a day."""

    rule: ReleaseRule
    """Name of the rule, as ``gate`` shows it."""
    platform: Annotated[str, AfterValidator(_check_platform)] | None = None
    """Platform that may break it; left out for a rule about the whole release."""
    reason: Annotated[str, _LINE]
    """Why the release may be published all the same."""
    owner: Annotated[str, _LINE, Field(max_length=LONGEST_NAME)]
    """Who answers for it."""
    until: Annotated[datetime.date, Field(strict=True)]
    """Last day on which it holds."""

    @field_validator("rule")
    @classmethod
    def _check_rule(cls, rule: ReleaseRule) -> ReleaseRule:
        if rule is ReleaseRule.WAIVERS:
            raise PydanticCustomError("expected", "another rule: waivers cannot be waived")
        if rule is ReleaseRule.REAL_DEVICE:
            what = "another rule: a simulated device proves nothing"
            raise PydanticCustomError("expected", what)
        return rule

    @property
    def place(self) -> tuple[ReleaseRule, str | None]:
        return self.rule, self.platform

    @property
    def applied(self) -> AppliedWaiver:
        """As a decision shows it."""
        return AppliedWaiver(reason=self.reason, owner=self.owner, until=self.until)

    def __str__(self) -> str:
        """``executed on cpu``."""
        return f"{self.rule} on {self.platform}" if self.platform else self.rule.value


class WaiverFile(_StrictModel):
    """The content of the file of waivers."""

    project: Annotated[str, _LINE]
    """Name of the project, as in ``ci.yaml``."""
    waivers: tuple[Waiver, ...] = ()
    """Each rule of a platform at most once."""

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        known: set[tuple[ReleaseRule, str | None]] = set()
        for number, waiver in enumerate(self.waivers):
            if waiver.place in known:
                what = f"each waiver once, not '{waiver}' again"
                raise PydanticCustomError("expected", what, {"at": ("waivers", number, "rule")})
            known.add(waiver.place)
        return self


def policy_digest(
    policy: ReleasePolicy, waivers: Sequence[Waiver], *, only_set: bool = False
) -> str:
    """SHA-256 of a policy and its waivers, whatever their layout in the files.

    ``only_set``: of the keys that were read, without the defaults of others.
    """
    document = {
        "release": policy.model_dump(mode="json", exclude_unset=only_set),
        "waivers": [it.model_dump(mode="json", exclude_unset=only_set) for it in waivers],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
