"""The decision about a release: one versioned value that a gate writes and other tools read back.

To add a field, add it at the end of its model with a default, and increase ``DECISION_VERSION``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ci.errors import ExitCode
from ci.model.fields import CommitId, Moment, Name, Text
from ci.model.release import (
    OF_BASELINE,
    OF_WHOLE_RELEASE,
    AppliedWaiver,
    ReleasePolicy,
    ReleaseRule,
    Waiver,
    policy_digest,
)
from ci.model.results import describe_faults
from ci.model.schema import schema_text
from ci.util.lines import parse_object
from ci.util.text import join_names

DECISION_VERSION = 3
LARGEST_DECISION = 1 << 22  # bytes; one of seven platforms has 20,000
LONGEST_EVIDENCE = 1000  # characters
MOST_OUTCOMES = 10_000  # of rules; each platform has about 20
MOST_RUNS = 1000


class GateVerdict(StrEnum):
    """Whether a release may be published."""

    GO = "go"
    NO_GO = "no_go"

    @property
    def shown(self) -> str:
        """``no-go``."""
        return self.replace("_", "-")


class OutcomeKind(StrEnum):
    """How a rule ended."""

    PASSED = "passed"
    FAILED = "failed"
    WAIVED = "waived"
    INFORMATIONAL = "informational"


class _DecisionPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, allow_inf_nan=False)


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class RuleOutcome(_DecisionPart):
    """How one rule ended, for one platform or for the whole release."""

    rule: ReleaseRule
    """Name of the rule."""
    platform: Name | None = None
    """Platform that was judged; null for a rule about the whole release."""
    outcome: OutcomeKind
    """``waived``: broken, and excused by a waiver. ``informational``: broken on a platform that the
    release does not require."""
    evidence: Annotated[Text, Field(max_length=LONGEST_EVIDENCE)]
    """What was found, and what was expected."""
    waiver: AppliedWaiver | None = None
    """The waiver of a waived rule."""

    @model_validator(mode="after")
    def _check_waiver(self) -> Self:
        if (self.waiver is not None) != (self.outcome is OutcomeKind.WAIVED):
            raise ValueError("waiver: expected one for a waived rule, and none for another")
        return self


class DecidedRun(_DecisionPart):
    """A run that the decision is about."""

    run_id: Name
    """Name of the run."""
    sha256: Sha256
    """SHA-256 of its ``results.json``, in hexadecimal; where only the store has the run, of the
    file that this version writes for it."""
    platforms: tuple[Name, ...]
    """Platforms whose results were taken from it."""


class Decision(_DecisionPart):
    """The whole of a decision file."""

    schema_version: Annotated[int, Field(ge=1, le=DECISION_VERSION)] = DECISION_VERSION
    """Version of this format. Older versions load."""
    project: Name
    """Name of the project, as in ``ci.yaml``."""
    tag: Name | None
    """Tag of the release; null where none was named."""
    commit: CommitId | None
    """Commit of the release; null where the runs do not agree on one."""
    decided_at: Moment
    """When it was decided, in UTC."""
    verdict: GateVerdict
    """``go`` only if no rule failed."""
    exit_code: Annotated[int, Field(ge=0, le=255)]
    """Exit code of the command: 0 for ``go``, 4 where only regressions stand against it, else 1."""
    rules: Annotated[tuple[RuleOutcome, ...], Field(min_length=1, max_length=MOST_OUTCOMES)]
    """Every rule with its evidence: of the release first, then of each platform."""
    runs: Annotated[tuple[DecidedRun, ...], Field(max_length=MOST_RUNS)]
    """The runs that were judged."""
    policy_sha256: Sha256
    """SHA-256 of the section ``release`` of ``ci.yaml`` and of the waivers, in canonical JSON."""
    policy: ReleasePolicy | None = None
    """What was demanded: the section ``release`` of ``ci.yaml``, with the names of the platforms in
    place of those of groups. Null in version 1."""
    waivers: tuple[Waiver, ...] = ()
    """All waivers of the file, also those that no rule needed."""

    @model_validator(mode="after")
    def _check_verdict(self) -> Self:
        is_go = not self.failed
        if (self.verdict is GateVerdict.GO) != is_go or (
            self.exit_code == ExitCode.PASSED
        ) != is_go:
            raise ValueError("verdict: expected 'go' and exit code 0 exactly if no rule failed")
        return self

    @model_validator(mode="after")
    def _check_demands(self) -> Self:
        if self.policy is None and self.schema_version > 1:
            raise ValueError("policy: expected what was demanded")
        if self.policy and (faults := [*self._demand_faults(self.policy)]):
            raise ValueError(f"policy: {join_names(faults)}")
        return self

    def _demand_faults(self, policy: ReleasePolicy) -> Iterator[str]:
        """What the rules with their outcomes contradict of what was demanded."""
        # An older version did not know all keys of the present one.
        is_older = self.schema_version < DECISION_VERSION
        if policy_digest(policy, self.waivers, only_set=is_older) != self.policy_sha256:
            yield "it has another SHA-256 than policy_sha256"
        without_result = [it.platform for it in self.without_result]
        judged = {(it.rule, it.platform) for it in self.rules}
        for platform in (None, *policy.platforms):
            for rule in policy.rules:
                is_due = (rule in OF_WHOLE_RELEASE) == (platform is None)
                if rule is ReleaseRule.WAIVERS:
                    is_due &= bool(self.waivers)
                elif platform in without_result:
                    is_due = rule is ReleaseRule.RESULT
                if is_due and (rule, platform) not in judged:
                    yield f"{rule} of {platform or 'the release'} was not judged"
        waived = {(*it.place, it.applied) for it in self.waivers}
        for it in self.rules:
            of = f"{it.rule} of {it.platform or 'the release'} is {it.outcome}"
            is_required = it.platform in policy.required
            is_broken = it.outcome in (OutcomeKind.FAILED, OutcomeKind.WAIVED)
            is_informational = it.outcome is OutcomeKind.INFORMATIONAL
            if is_broken and it.platform and not is_required:
                yield f"{of}, and the platform is not required"
            if is_informational and is_required and it.rule not in OF_BASELINE:
                yield f"{of}, and the platform is required"
            if it.waiver and (it.rule, it.platform, it.waiver) not in waived:
                yield f"{of}, and there is no such waiver"

    @property
    def failed(self) -> tuple[RuleOutcome, ...]:
        """The rules that stand against the release."""
        return tuple(it for it in self.rules if it.outcome is OutcomeKind.FAILED)

    @property
    def waived(self) -> tuple[RuleOutcome, ...]:
        """The broken rules that waivers excuse."""
        return tuple(it for it in self.rules if it.outcome is OutcomeKind.WAIVED)

    @property
    def without_result(self) -> tuple[RuleOutcome, ...]:
        """The rule ``result`` of each platform without one: the only rule that was judged."""
        judged = Counter(it.platform for it in self.rules)
        return tuple(
            it for it in self.rules if it.rule is ReleaseRule.RESULT and judged[it.platform] == 1
        )

    def to_json(self) -> str:
        return self.model_dump_json(indent=2, ensure_ascii=True) + "\n"


def parse_decision(content: bytes) -> Decision:
    """Read a decision; raises ``ValueError`` with the faults of a file that is none."""
    if len(content) > LARGEST_DECISION:
        raise ValueError(f"got {len(content):,} bytes, expected at most {LARGEST_DECISION:,}")
    document = parse_object(content.decode())
    version = document.get("schema_version")
    if not isinstance(version, int) or not 1 <= version <= DECISION_VERSION:
        raise ValueError(f"schema_version: got {version!r:.100}, expected 1 to {DECISION_VERSION}")
    try:
        return Decision.model_validate_json(json.dumps(document))
    except ValidationError as error:
        raise ValueError(describe_faults(error)) from error


def decision_schema() -> str:
    """Return the JSON schema of a decision file."""
    return schema_text(Decision, "serialization", "decision.json")
