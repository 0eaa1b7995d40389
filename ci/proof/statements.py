"""The statements that ``attest`` makes of a run: values with the field names of their standards.

Statement and resource descriptor:
https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and resource_descriptor.md

Test result: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md

Provenance: https://slsa.dev/spec/v1.2/build-provenance

Verification summary: https://slsa.dev/spec/v1.2/verification_summary
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_serializer
from pydantic.alias_generators import to_camel

from ci.model.decision import Decision, Sha256
from ci.model.fields import CommitId, Moment
from ci.model.results import describe_faults
from ci.util.lines import parse_object

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"  # of an envelope
SLSA_VERSION = "1.2"
PROGRAM_URI = "pkg:generic/infini-ci"  # a package URL: the program has no address of its own
BUILD_TYPE = f"{PROGRAM_URI}#distribution/v1"
DECISION_FIELD = f"{PROGRAM_URI}#decision/v1"  # names of additional fields have to be URIs
PLATFORM, DECIDED = "platform", "decided"  # annotations of results.json
GATE_PASSED = "RELEASE_GATE_PASSED"  # levels of our own must not begin with SLSA_


class SignedFiles(Enum):
    """How signed files are named, by what signs them. A folder can have both kinds."""

    KEY = (".json", ".intoto.jsonl")
    SIGSTORE = (".sigstore.json", ".sigstore.jsonl")

    @property
    def end(self) -> str:
        """That of the name of a file with one statement."""
        return self.value[0]

    @property
    def bundle_end(self) -> str:
        """That of the name of a file with all of them, one in each line."""
        return self.value[1]

    @property
    def bundle_file(self) -> str:
        """What `attest` writes all of them to."""
        return f"attestations{self.bundle_end}"

    def has(self, name: str) -> bool:
        """Whether a file of this name is one of them."""
        kinds = (SignedFiles.SIGSTORE, SignedFiles.KEY)  # the longer end first
        return next((it for it in kinds if name.endswith(it.value)), None) is self


class _StatementPart(BaseModel):
    # The standards require readers to ignore fields that they do not know.
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class DigestSet(_StatementPart):
    """Digests of one thing, in hexadecimal."""

    sha256: Sha256 | None = None
    git_commit: CommitId | None = None


class ResourceDescriptor(_StatementPart):
    """A file of the run, by its path relative to ``results.json``, or something else by its URI."""

    name: str | None = None
    uri: str | None = None
    digest: DigestSet | None = None
    annotations: dict[str, JsonValue] | None = None


class Predicate(_StatementPart):
    """What a statement says about its subjects."""

    type_uri: ClassVar[str]

    @property
    def files(self) -> tuple[ResourceDescriptor, ...]:
        """Files of the run that it names in addition to the subjects."""
        return ()


class StatedResult(StrEnum):
    """How the tests of a platform ended."""

    PASSED = "PASSED"
    WARNED = "WARNED"
    FAILED = "FAILED"


class StatedTests(Predicate):
    """The result of a platform. It has no field for skipped tests: ``results.json`` has them."""

    type_uri: ClassVar[str] = "https://in-toto.io/attestation/test-result/v0.1"

    result: StatedResult
    configuration: tuple[ResourceDescriptor, ...]
    passed_tests: tuple[str, ...] = ()
    warned_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[ResourceDescriptor, ...]:
        return self.configuration


class BuildDefinition(_StatementPart):
    """The inputs of a build."""

    build_type: str
    external_parameters: dict[str, JsonValue]
    internal_parameters: dict[str, JsonValue] | None = None
    resolved_dependencies: tuple[ResourceDescriptor, ...] = ()


class StatedIdentity(_StatementPart):
    """Who built or verified something."""

    id: str


class BuildMetadata(_StatementPart):
    """Which run built it, and when."""

    invocation_id: str
    started_on: Moment
    finished_on: Moment


class RunDetails(_StatementPart):
    """The circumstances of a build."""

    builder: StatedIdentity
    metadata: BuildMetadata
    byproducts: tuple[ResourceDescriptor, ...] = ()


class BuildProvenance(Predicate):
    """How a wheel or source distribution was built."""

    type_uri: ClassVar[str] = "https://slsa.dev/provenance/v1"

    build_definition: BuildDefinition
    run_details: RunDetails

    @property
    def files(self) -> tuple[ResourceDescriptor, ...]:
        return self.run_details.byproducts


class VerificationSummary(Predicate):
    """The decision of the gate."""

    type_uri: ClassVar[str] = "https://slsa.dev/verification_summary/v1"

    verifier: StatedIdentity
    time_verified: Moment
    resource_uri: str
    policy: ResourceDescriptor
    input_attestations: tuple[ResourceDescriptor, ...]
    verification_result: Literal[StatedResult.PASSED, StatedResult.FAILED]
    verified_levels: tuple[str, ...]
    slsa_version: str
    decision: Annotated[Decision, Field(alias=DECISION_FIELD)]

    @field_serializer("decision")
    def _write_decision(self, decision: Decision) -> dict[str, Any]:
        """With its nulls, which the fields of the standards leave out."""
        return decision.model_dump(mode="json")


PREDICATES = {it.type_uri: it for it in (StatedTests, BuildProvenance, VerificationSummary)}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A predicate with its subjects."""

    subject: tuple[ResourceDescriptor, ...]
    predicate: Predicate

    @property
    def files(self) -> tuple[ResourceDescriptor, ...]:
        """Everything named that has a SHA-256 and no URI: a file of the run."""
        named = (*self.subject, *self.predicate.files)
        return tuple(it for it in named if it.digest and it.digest.sha256 and not it.uri)

    @property
    def platform(self) -> str | None:
        """The platform that it is about."""
        name = self._annotations.get(PLATFORM)
        return name if isinstance(name, str) else None

    @property
    def is_decided(self) -> bool:
        """Whether a verification summary was made together with it."""
        return self._annotations.get(DECIDED) is True

    @property
    def _annotations(self) -> dict[str, JsonValue]:
        """Those of the file that has any: ``results.json``."""
        return next((it.annotations for it in self.files if it.annotations), {})

    def to_json(self) -> str:
        """JSON without spaces and with sorted names: the same text for the same run."""
        return canonical(
            {
                "_type": STATEMENT_TYPE,
                "subject": [_document(it) for it in self.subject],
                "predicateType": self.predicate.type_uri,
                "predicate": _document(self.predicate),
            }
        )


def canonical(document: Any) -> str:
    """A JSON document as a text that has no other spelling."""
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def envelope_digest(text: str) -> str:
    """SHA-256 of a file or of a line with this envelope."""
    return hashlib.sha256(f"{text}\n".encode(errors="surrogateescape")).hexdigest()


def _document(model: _StatementPart) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class _Header(_StatementPart):
    """The fields of a statement, before its predicate is read."""

    type: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")]
    subject: Annotated[tuple[ResourceDescriptor, ...], Field(min_length=1)]
    predicate_type: str
    predicate: dict[str, Any]


def parse_statement(content: bytes) -> Statement:
    """Read a statement; raises ``ValueError`` for anything else."""
    try:
        header = _Header.model_validate(parse_object(content.decode()))
        kind = PREDICATES.get(header.predicate_type)
        if kind is None:
            expected = f"expected one of {', '.join(PREDICATES)}"
            raise ValueError(f"predicateType: got {header.predicate_type!r:.100}, {expected}")
        predicate = kind.model_validate_json(json.dumps(header.predicate))
    except ValidationError as error:
        raise ValueError(describe_faults(error)) from error
    return Statement(subject=header.subject, predicate=predicate)
