"""Statements have the fields of their standards, and claim no more than the run has shown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.predicates.vsa.v1 import vsa_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as PublishedStatement
from jsonschema import validate

from ci.errors import InfrastructureError, UsageError
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import RunResult
from ci.model.verdicts import Harness, Product
from ci.proof.evidence import FileDigest, PlatformEvidence, RunEvidence, read_evidence
from ci.proof.run_statements import run_statements, stated_result, summary_statement
from ci.proof.statements import (
    DECISION_FIELD,
    PROGRAM_URI,
    StatedResult,
    Statement,
    VerificationSummary,
    parse_statement,
)
from ci.store.folder import read_results
from tests.ci.attested_runs import (
    COMMIT,
    MIXED,
    SDIST,
    WHEEL,
    decision_about,
    write_run,
)
from tests.ci.made_results import made_test, made_verdict
from tests.ci.review import check_golden

GOLDEN = Path(__file__).parent / "golden" / "statements.txt"
HEX = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
DESCRIPTORS = {
    "type": "array",
    "items": {"anyOf": [{"required": [it]} for it in ("uri", "digest", "content")]},
}
OUTSIDE = ("/etc/passwd", "../x.whl", "a//b.whl", "nvidia/./a.whl", "a/" * 20)
URI = {"type": "string", "pattern": r"^[a-z]+:\S+$"}


def fields(**named: Any) -> dict[str, Any]:
    """The schema of an object with these fields, and others that are optional."""
    return {"type": "object", "required": [*named], "properties": named}


# The required fields, from the pages in the docstring of ci/proof/statements.py.
PREDICATES = {
    "https://in-toto.io/attestation/test-result/v0.1": fields(
        result={"enum": ["PASSED", "WARNED", "FAILED"]}, configuration=DESCRIPTORS
    ),
    "https://slsa.dev/provenance/v1": fields(
        buildDefinition=fields(buildType=URI, externalParameters={"type": "object"}),
        runDetails=fields(builder=fields(id=URI)),
    ),
    "https://slsa.dev/verification_summary/v1": fields(
        verifier=fields(id=URI),
        timeVerified=TIME,
        resourceUri=URI,
        policy=fields(uri=URI),
        verificationResult={"enum": ["PASSED", "FAILED"]},
        verifiedLevels={"type": "array", "items": {"type": "string", "pattern": "^(?!SLSA_)"}},
    ),
}
MESSAGES = {
    "https://in-toto.io/attestation/test-result/v0.1": test_result_pb2.TestResult,
    "https://slsa.dev/provenance/v1": provenance_pb2.Provenance,
    "https://slsa.dev/verification_summary/v1": vsa_pb2.VerificationSummary,
}


@pytest.fixture
def evidence(tmp_path: Path) -> RunEvidence:
    return read_evidence(write_run(tmp_path))


def all_statements(evidence: RunEvidence, folder: Path) -> dict[str, Statement]:
    made = run_statements(evidence, PROGRAM_URI)
    inputs = dict.fromkeys(made, "cd" * 32)
    summary = summary_statement(evidence, decision_about(folder), inputs, PROGRAM_URI)
    return {**made, "verification-summary.json": summary}


def test_statements_have_the_fields_of_their_standards(
    evidence: RunEvidence, tmp_path: Path
) -> None:
    made = all_statements(evidence, tmp_path / evidence.run.run_id)
    assert sorted(made) == [
        "ascend.test-result.json",
        f"nvidia.{WHEEL}.provenance.json",
        f"nvidia.{SDIST}.provenance.json",
        "nvidia.test-result.json",
        "verification-summary.json",
    ]
    for statement in made.values():
        document = json.loads(statement.to_json())
        kind = document["predicateType"]
        header = fields(
            _type={"const": "https://in-toto.io/Statement/v1"},
            subject={**DESCRIPTORS, "minItems": 1, "items": fields(digest={"minProperties": 1})},
            predicateType={"enum": [*PREDICATES]},
            predicate=PREDICATES[kind],
        )
        validate(document, header)
        message = ParseDict(document, statement_pb2.Statement())
        PublishedStatement.copy_from_pb(message).validate()
        document["predicate"].pop(DECISION_FIELD, None)  # an additional field, named by a URI
        if kind == VerificationSummary.type_uri:  # the message has one level, the page a list
            [document["predicate"]["verifiedLevels"]] = document["predicate"]["verifiedLevels"]
        ParseDict(document["predicate"], MESSAGES[kind]())  # knows all other fields
        assert parse_statement(statement.to_json().encode()) == statement


def test_the_schema_finds_a_missing_field(evidence: RunEvidence) -> None:
    statement = run_statements(evidence, PROGRAM_URI)["nvidia.test-result.json"]
    document = json.loads(statement.to_json())
    del document["predicate"]["configuration"]
    with pytest.raises(ValueError, match=r"^configuration: Field required"):
        parse_statement(json.dumps(document).encode())


def test_golden_statements(evidence: RunEvidence, tmp_path: Path) -> None:
    run = tmp_path / evidence.run.run_id
    results = evidence.results.sha256  # it changes with the version of the results
    check_golden(
        GOLDEN,
        {
            name: json.dumps(json.loads(it.to_json()), indent=1).replace(results, "0" * 64)
            for name, it in all_statements(evidence, run).items()
        },
    )


def test_tests_are_listed_by_their_outcome(tmp_path: Path) -> None:
    evidence = read_evidence(write_run(tmp_path, ascend=Product.FAILED, log=MIXED))
    predicate = json.loads(
        run_statements(evidence, PROGRAM_URI)["ascend.test-result.json"].to_json()
    )["predicate"]
    assert predicate["result"] == "FAILED"
    assert predicate["passedTests"] == ["t.py::test_passes"]
    assert predicate["warnedTests"] == ["t.py::test_expected"]
    assert predicate["failedTests"] == ["t.py::test_fails"]  # the skipped test has no field


def platform(
    evidence: RunEvidence,
    product: Product = Product.PASSED,
    *outcomes: Outcome,
    harness: Harness = Harness.CLEAN,
    has_log: bool = True,
    selected: str | None = None,
) -> PlatformEvidence:
    """A platform with a verdict and with tests of these outcomes."""
    row = evidence.run.platforms[0]
    environment = {"selection": {"operators": selected}} if selected else {}
    changes = {"verdict": made_verdict(product, "x", harness=harness), "environment": environment}
    tests: Sequence[TestOutcome] = [made_test(f"t::{it}", it) for it in outcomes]
    return PlatformEvidence(
        result=row.model_copy(update=changes),
        records=(),
        configuration=(),
        tests=tests,
        has_log=has_log,
        distributions=(),
    )


@pytest.mark.parametrize("product", [it for it in Product if it is not Product.PASSED])
@pytest.mark.parametrize("harness", Harness)
def test_no_other_verdict_is_a_pass(
    evidence: RunEvidence, product: Product, harness: Harness
) -> None:
    shown = platform(evidence, product, Outcome.PASSED, harness=harness)
    assert stated_result(shown) is StatedResult.FAILED


@pytest.mark.parametrize(
    ("outcomes", "more", "expected"),
    [
        ((Outcome.PASSED, Outcome.SKIPPED), {}, StatedResult.PASSED),
        ((Outcome.PASSED, Outcome.XFAILED), {}, StatedResult.WARNED),
        ((Outcome.PASSED, Outcome.XPASSED), {}, StatedResult.WARNED),
        ((Outcome.PASSED, Outcome.ERROR), {}, StatedResult.FAILED),
        ((Outcome.PASSED,), {"harness": Harness.EXIT_AFTER_SUMMARY}, StatedResult.WARNED),
        ((Outcome.PASSED,), {"selected": "add"}, StatedResult.WARNED),
        ((), {"has_log": False}, StatedResult.WARNED),
    ],
)
def test_a_pass_has_no_reservation(
    evidence: RunEvidence,
    outcomes: Sequence[Outcome],
    more: dict[str, Any],
    expected: StatedResult,
) -> None:
    assert stated_result(platform(evidence, Product.PASSED, *outcomes, **more)) is expected


def changed_run(evidence: RunEvidence, **changes: Any) -> RunEvidence:
    run = evidence.run.model_copy(update=changes)
    return RunEvidence(run=run, results=evidence.results, platforms=evidence.platforms)


@pytest.mark.parametrize("changes", [{"dirty": True}, {"commit": None}, {"commit": "v1"}])
def test_other_sources_than_a_commit_are_not_called_one(
    evidence: RunEvidence, changes: dict[str, Any]
) -> None:
    clean = run_statements(evidence, PROGRAM_URI).values()
    assert all(COMMIT in it.to_json() for it in clean)
    other = run_statements(changed_run(evidence, **changes), PROGRAM_URI).values()
    assert not any("gitCommit" in it.to_json() for it in other)


def test_the_image_is_an_input_of_the_build(evidence: RunEvidence, tmp_path: Path) -> None:
    run = read_results(tmp_path / evidence.run.run_id / "results.json")
    image = {
        "reference": "infini:tag",
        "digest": f"sha256:{'1' * 64}",
        "base": "registry/base:1",
        "base_digest": f"registry/base@sha256:{'2' * 64}",
    }
    first, last = evidence.platforms
    row = run.platforms[0].model_copy(update={"environment": {"engine": {"image": image}}})
    built = PlatformEvidence(**{**vars(first), "result": row})
    changed = RunEvidence(run=run, results=evidence.results, platforms=(built, last))
    statement = run_statements(changed, PROGRAM_URI)[f"nvidia.{WHEEL}.provenance.json"]
    definition = json.loads(statement.to_json())["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": COMMIT}},
        {"uri": "docker:infini:tag", "digest": {"sha256": "1" * 64}},
        {"uri": "docker:registry/base:1", "digest": {"sha256": "2" * 64}},
    ]


def test_a_decision_about_other_results_is_refused(evidence: RunEvidence, tmp_path: Path) -> None:
    decision = decision_about(tmp_path / evidence.run.run_id)
    changed = FileDigest(path="results.json", sha256="f" * 64)
    other = RunEvidence(run=evidence.run, results=changed, platforms=evidence.platforms)
    with pytest.raises(UsageError, match="the decision is about other results of run 2026"):
        summary_statement(other, decision, {}, PROGRAM_URI)
    run: RunResult = evidence.run.model_copy(update={"run_id": "x"})
    other = RunEvidence(run=run, results=evidence.results, platforms=evidence.platforms)
    with pytest.raises(UsageError, match=r"got a decision about 2026\S+, expected one about x"):
        summary_statement(other, decision, {}, PROGRAM_URI)


def test_a_wheel_that_was_replaced_is_not_attested(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "nvidia" / "dist" / WHEEL).write_text("other")
    with pytest.raises(InfrastructureError, match=r"whl: got SHA-256 \w+, expected \w+ as in res"):
        read_evidence(folder)


@pytest.mark.parametrize("name", ["../ascend", "a/b", ".", "..", ".hidden"])
def test_a_platform_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path)
    document = json.loads((folder / "results.json").read_text())
    document["platforms"][0]["platform"] = name
    (folder / "results.json").write_text(json.dumps(document))
    with pytest.raises(InfrastructureError, match=r"got the platform '.*', expected the name"):
        read_evidence(folder)


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    folder = write_run(tmp_path)
    document = json.loads((folder / "results.json").read_text())
    document["platforms"][0]["distributions"][0]["path"] = path
    (folder / "results.json").write_text(json.dumps(document))
    with pytest.raises(InfrastructureError, match="expected one inside of the run's folder"):
        read_evidence(folder)
