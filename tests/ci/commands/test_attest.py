"""``attest`` signs what a run has shown, and ``attest --verify`` accepts nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.errors import ExitCode
from ci.model.verdicts import Product
from ci.proof import keys, verification
from ci.proof.statements import SignedFiles
from ci.store.folder import link_latest
from tests.ci.attested_runs import GIVEN, RUN_ID, SDIST, WHEEL, decision_about, write_key, write_run

BUNDLE_FILE = SignedFiles.KEY.bundle_file
Output = pytest.CaptureFixture[str]
TODAY = datetime.now(UTC).date()
TESTS = "nvidia.test-result.json"
SUBJECTS = (
    "results.json",
    "nvidia/events.jsonl",
    "nvidia/pytest.jsonl",
    "nvidia/junit.xml",
    "nvidia/environment.json",
    "contracts/nvidia.yaml",
    f"nvidia/dist/{WHEEL}",
    f"nvidia/dist/{SDIST}",
    f"ascend/dist/{GIVEN}",
    "ascend/pytest.jsonl",
)


class Site:
    """A run, a key, and the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = write_key(folder / "key")
        self.results = folder / "results"
        self.run = write_run(self.results)
        self.attestations = self.run / "attestations"
        self.decision = folder / "decision.json"

    def attest(self, *words: object) -> int:
        arguments = ("attest", RUN_ID, "--results", self.results, *words)
        return cli.main([str(it) for it in arguments])

    def sign(self, *words: object) -> None:
        decided = ("--decision", self.decision) if self.decision.exists() else ()
        assert self.attest("--key", self.key, *decided, *words) == ExitCode.PASSED

    def decide(self, **how: Any) -> None:
        self.decision.write_text(decision_about(self.run, **how).to_json())

    def verify(
        self, path: Path | None = None, key: Path | None = None, config: Path | None = None
    ) -> int:
        public = key or self.key.with_name("key.pub")
        words = ["attest", "--verify", path or self.run, "--key", public]
        words += ["--config", config] if config else []
        return cli.main([str(it) for it in words])

    def payload(self, name: str) -> dict[str, Any]:
        text = (self.attestations / name).read_text().removesuffix("\n")
        key = keys.load_public_key(self.key.with_name("key.pub"))
        document: dict[str, Any] = json.loads(keys.open_envelope(text, key))
        return document

    def sign_document(self, name: str, document: object) -> None:
        """Replace an attestation by a signed one of any content, and leave out the bundle."""
        signer = keys.load_signer(self.key, {})
        text = keys.sign(json.dumps(document).encode(), signer)
        (self.attestations / name).write_text(f"{text}\n")
        (self.attestations / BUNDLE_FILE).unlink(missing_ok=True)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def rejected(
    site: Site,
    capsys: Output,
    *messages: str,
    path: Path | None = None,
    config: Path | None = None,
) -> None:
    """Verify, which fails with these messages."""
    capsys.readouterr()
    assert site.verify(path, config=config) == ExitCode.PRODUCT_FAILURE
    said = capsys.readouterr()
    assert said.out == ""
    assert [it for it in messages if it not in said.err] == [], said.err


def test_what_was_signed_is_verified(site: Site, capsys: Output) -> None:
    site.decide()
    site.sign()
    written = capsys.readouterr().out.splitlines()
    names = sorted(path.name for path in site.attestations.iterdir())
    assert names == [
        "ascend.test-result.json",
        BUNDLE_FILE,
        f"nvidia.{WHEEL}.provenance.json",
        f"nvidia.{SDIST}.provenance.json",
        TESTS,
        "verification-summary.json",
    ]
    assert sorted(Path(line).name for line in written[:-1]) == names
    assert "5 attestations of run" in written[-1]
    for path in (site.run, site.attestations, site.attestations / BUNDLE_FILE):
        assert site.verify(path) == ExitCode.PASSED
        shown = capsys.readouterr().out
        for platform in ("nvidia", "ascend"):
            assert f"{platform}: PASSED, 1 passed, 0 warned, 0 failed\n" in shown
        assert f"nvidia/dist/{WHEEL}: built by pkg:generic/infini-ci" in shown
        assert "pkg:generic/infini-ops@v0.1.0: go\n" in shown
        assert f"5 attestations of run {RUN_ID} verified" in shown
    for path in site.attestations.glob("*.json"):
        assert site.verify(path) == ExitCode.PASSED


def test_the_same_run_and_key_give_the_same_files(site: Site) -> None:
    site.decide()
    site.sign()
    first = {path.name: path.read_bytes() for path in site.attestations.iterdir()}
    site.sign("--output", site.folder / "other")
    assert {it.name: it.read_bytes() for it in (site.folder / "other").iterdir()} == first


def test_the_latest_run_and_files_elsewhere(site: Site, capsys: Output) -> None:
    link_latest(site.run)
    words = ["attest", "--results", str(site.results), "--key", str(site.key)]
    elsewhere = site.folder / "elsewhere"
    assert cli.main([*words, "--output", str(elsewhere)]) == ExitCode.PASSED
    assert site.verify(elsewhere) == ExitCode.USAGE
    assert "got no results.json there or in the folder above" in capsys.readouterr().err
    public = str(site.key.with_name("key.pub"))
    verify = ["attest", RUN_ID, "--results", str(site.results), "--verify", str(elsewhere)]
    assert cli.main([*verify, "--key", public]) == ExitCode.PASSED


def test_without_a_key_nothing_is_called_an_attestation(site: Site, capsys: Output) -> None:
    assert site.attest() == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert "4 unsigned statements" in shown
    assert "anyone can change them, so they prove nothing" in shown
    assert "attestation" not in shown
    assert not site.attestations.exists()
    assert site.verify() == ExitCode.USAGE
    assert "got no attestations" in capsys.readouterr().err
    statements = site.run / "statements"
    rejected(site, capsys, "got a statement without a signature", path=statements)


@pytest.mark.parametrize("name", SUBJECTS)
def test_one_changed_byte_is_found(site: Site, capsys: Output, name: str) -> None:
    site.sign()
    content = bytearray((site.run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (site.run / name).write_bytes(content)
    if name == f"ascend/dist/{GIVEN}":  # not built here, so no statement is about it
        assert site.verify() == ExitCode.PASSED
        assert site.attest("--key", site.key) == ExitCode.INFRASTRUCTURE
    else:
        rejected(site, capsys, f"{name}: got SHA-256 ", ": not verified")


def test_a_given_file_of_a_release_is_a_subject(site: Site, capsys: Output) -> None:
    site.decide()
    site.sign()
    (site.run / "ascend" / "dist" / GIVEN).write_bytes(b"x")
    rejected(site, capsys, f"ascend/dist/{GIVEN}: got SHA-256 ")


@pytest.mark.parametrize("name", SUBJECTS[1:8])
def test_a_missing_file_is_found(site: Site, capsys: Output, name: str) -> None:
    site.sign()
    (site.run / name).unlink()
    rejected(site, capsys, f"{name}: the file is missing")


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "linked folder"])
def test_only_regular_files_count(site: Site, capsys: Output, kind: str) -> None:
    site.sign()
    path = site.run / "nvidia" / "pytest.jsonl"
    kept = site.folder / "kept"
    if kind == "linked folder":
        shutil.move(path.parent, kept)
        path.parent.symlink_to(kept)
    else:
        shutil.move(path, kept)
        make: dict[str, Callable[[], None]] = {
            "link": lambda: path.symlink_to(kept),
            "folder": path.mkdir,
            "pipe": lambda: os.mkfifo(path),
        }
        make[kind]()
    how = "got something else than" if kind == "pipe" else "got no"
    rejected(site, capsys, f"nvidia/pytest.jsonl: {how}")


@pytest.mark.parametrize("is_bundle", [False, True])
@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("ascend.test-result.json", "ascend: got no test result, expected one of each platform"),
        (f"nvidia.{WHEEL}.provenance.json", f"nvidia/dist/{WHEEL}: got no provenance"),
    ],
)
def test_a_statement_that_is_missing_is_found(
    site: Site, capsys: Output, lost: str, message: str, is_bundle: bool
) -> None:
    site.sign()
    bundle = site.attestations / BUNDLE_FILE
    text = (site.attestations / lost).read_text()
    bundle.write_text(bundle.read_text().replace(text, ""))
    (site.attestations / lost).unlink()
    rejected(site, capsys, message, path=bundle if is_bundle else None)


def test_the_decision_names_what_it_was_made_on(site: Site, capsys: Output) -> None:
    site.decide()
    site.sign()
    (site.attestations / BUNDLE_FILE).unlink()
    (site.attestations / TESTS).unlink()
    message = f"{TESTS}: got no such attestation, expected what the decision names"
    rejected(site, capsys, message)


def test_a_decision_cannot_be_left_out(site: Site, capsys: Output) -> None:
    site.decide(is_go=False)
    site.sign()
    (site.attestations / BUNDLE_FILE).unlink()
    (site.attestations / "verification-summary.json").unlink()
    rejected(site, capsys, "got no verification summary, expected the one that was signed with")


def test_a_decision_is_about_its_platforms_only(site: Site, capsys: Output) -> None:
    shutil.rmtree(site.run)
    write_run(site.results, ascend=Product.FAILED)
    site.decide(platforms=("nvidia",))
    site.sign()
    names = [it["name"] for it in site.payload("verification-summary.json")["subject"]]
    assert names == [f"nvidia/dist/{WHEEL}", f"nvidia/dist/{SDIST}", "results.json"]
    rejected(site, capsys, "ascend: the tests FAILED, and no decision waives that")


@pytest.mark.parametrize("kind", ["ssh", "pem"])
def test_a_wrong_key_verifies_nothing(site: Site, capsys: Output, kind: str) -> None:
    site.sign()
    other = write_key(site.folder / "other", kind, seed=bytes(32))
    capsys.readouterr()
    assert site.verify(key=other.with_name("other.pub")) == ExitCode.PRODUCT_FAILURE
    assert "got a signature of key " in capsys.readouterr().err


def test_a_statement_of_another_run_is_found(site: Site, capsys: Output) -> None:
    site.sign()
    (site.folder / "there").mkdir()
    other = Site(site.folder / "there")
    shutil.rmtree(other.run)
    write_run(other.results, ascend=Product.FAILED)
    other.sign()
    shutil.copy(other.attestations / TESTS, site.attestations / "other.test-result.json")
    rejected(site, capsys, "results.json: got SHA-256 ")


@pytest.mark.parametrize("product", [Product.FAILED, Product.INCOMPLETE, Product.NOT_RUN])
def test_what_did_not_pass_is_no_release(site: Site, capsys: Output, product: Product) -> None:
    shutil.rmtree(site.run)
    write_run(site.results, ascend=product)
    site.sign()
    rejected(site, capsys, "ascend: the tests FAILED, and no decision waives that")
    site.decide()
    site.sign()
    assert site.verify() == ExitCode.PASSED


def test_a_decision_of_no_go_is_no_release(site: Site, capsys: Output) -> None:
    site.decide(is_go=False)
    site.sign()
    assert site.payload("verification-summary.json")["predicate"]["verifiedLevels"] == ["FAILED"]
    rejected(site, capsys, "the decision is no-go: commit")


def test_a_waiver_holds_until_its_last_day(site: Site, capsys: Output) -> None:
    site.decide(until=TODAY + timedelta(days=1))
    site.sign()
    assert site.verify() == ExitCode.PASSED
    ended = TODAY - timedelta(days=1)
    site.decide(until=ended)
    site.sign()
    rejected(site, capsys, f"the waiver of rule skips of ascend ended on {ended}")


RULES = """\
project: infini-ops
platforms: {nvidia: {}, ascend: {}}
test: python -m pytest
release:
  required: [nvidia, ascend]
"""


def test_a_decision_that_demanded_something_else_is_found(site: Site, capsys: Output) -> None:
    """What the file at the release demands is compared with what the decision records."""
    config = site.folder / "ci.yaml"
    config.write_text(RULES)
    site.sign()
    rejected(site, capsys, "got no decision of a gate, expected one by the", config=config)
    site.decide()
    site.sign()
    assert site.verify(config=config) == ExitCode.PASSED
    config.write_text(f"{RULES}  oldest_days: 14\n".replace("[nvidia, ", "["))
    rejected(
        site,
        capsys,
        'the decision demanded ["nvidia", "ascend"] for release.required, expected ["ascend"]',
        "the decision demanded null for release.oldest_days, expected 14.0 as in",
        config=config,
    )
    config.write_text(f"{RULES}  waivers: waivers.yaml\n")
    waiver = "rule: age, reason: a, owner: b, until: 2999-12-31, platform: nvidia"
    config.with_name("waivers.yaml").write_text(f"project: infini-ops\nwaivers:\n- {{{waiver}}}\n")
    rejected(site, capsys, "had no waiver of rule age on nvidia, which", config=config)
    site.decide(until=TODAY + timedelta(days=1))
    site.sign()
    rejected(site, capsys, "had a waiver of rule skips on ascend, which", config=config)
    config.write_text(RULES.partition("release:")[0])
    assert site.verify(config=config) == ExitCode.USAGE
    assert site.attest("--config", config) == ExitCode.USAGE
    assert "--config: got no --verify" in capsys.readouterr().err


def test_a_decision_is_what_it_demanded(site: Site, capsys: Output) -> None:
    """No other key of a decision makes up for a platform that it required and did not judge."""
    site.decide()
    site.sign()
    name = "verification-summary.json"
    document = site.payload(name)
    [decision] = [it for key, it in document["predicate"].items() if key.endswith("#decision/v1")]
    decision["policy"]["required"] = ["nvidia"]
    site.sign_document(name, document)
    rejected(site, capsys, "policy: it has another SHA-256 than policy_sha256")
    site.sign()
    document = site.payload(name)
    document["predicate"]["policy"]["digest"]["sha256"] = "a" * 64
    site.sign_document(name, document)
    rejected(site, capsys, "the verification summary names another policy than its decision")


def test_a_summary_that_contradicts_its_decision_is_found(site: Site, capsys: Output) -> None:
    site.decide(is_go=False)
    site.sign()
    document = site.payload("verification-summary.json")
    document["predicate"]["verificationResult"] = "PASSED"
    site.sign_document("verification-summary.json", document)
    rejected(site, capsys, "the verification summary differs from its decision")


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ({"name": "../key", "digest": {"sha256": "a" * 64}}, "expected one inside of the run's"),
        ({"name": "/etc/passwd", "digest": {"sha256": "a" * 64}}, "got the path '/etc/passwd'"),
        ({"name": "a\0b", "digest": {"sha256": "a" * 64}}, "expected one inside of the run's"),
        ({"name": "\ud800", "digest": {"sha256": "a" * 64}}, "not verified"),
        ({"name": "a" * 5000, "digest": {"sha256": "a" * 64}}, "File name too long"),
        ({"name": "x", "digest": {"sha512": "a" * 128}}, "got no digest that can be checked"),
        ({"name": "x", "digest": {"gitCommit": "f" * 40}}, "source: got commit 0123abcd"),
        ({"name": "x"}, "got no digest that can be checked"),
        ({"name": "x", "digest": {"sha256": "a"}}, "sha256: String should match pattern"),
        (7, "subject.1: Input should be"),
    ],
)
def test_signed_paths_do_not_leave_the_run(
    site: Site, capsys: Output, subject: object, message: str
) -> None:
    site.sign()
    document = site.payload(TESTS)
    document["subject"][1:1] = [subject]
    site.sign_document(TESTS, document)
    rejected(site, capsys, message)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "not a JSON object"),
        ({}, "_type: Field required"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "_type: Input should be"),
        ({"predicateType": "https://example.com/other"}, "predicateType: got 'https://example"),
        ({"subject": []}, "subject: Tuple should have at least 1 item"),
        ({"predicate": {"result": "MAYBE", "configuration": []}}, "result: Input should be"),
        ({"predicate": "x"}, "predicate: Input should be"),
    ],
)
def test_a_signed_text_that_is_no_statement_is_found(
    site: Site, capsys: Output, document: Any, message: str
) -> None:
    site.sign()
    signed = {**site.payload(TESTS), **document} if document else document
    site.sign_document(TESTS, signed)
    rejected(site, capsys, message)


def test_a_deep_or_huge_file_is_refused(
    site: Site, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.sign()
    path = site.attestations / TESTS
    for text in ("[" * 100_000, '{"a":' * 100_000, "9" * 100_000):
        path.write_text(text)
        rejected(site, capsys, ": not verified")
    monkeypatch.setattr(verification, "LARGEST_ENVELOPES", 1000)
    path.write_text("x" * 1001)
    assert site.verify(path) == ExitCode.INFRASTRUCTURE
    assert "got more than 1,000 bytes" in capsys.readouterr().err
    path.unlink()
    path.symlink_to(site.key)
    assert site.verify(path) == ExitCode.INFRASTRUCTURE
    monkeypatch.setattr(verification, "MOST_ENVELOPES", 2)
    monkeypatch.setattr(verification, "LARGEST_ENVELOPES", 100_000)
    path.unlink()
    rejected(site, capsys, "got more than 2 attestations")


def test_no_mutated_envelope_passes(site: Site) -> None:
    """Every changed byte, cut or insertion is a fault, and none raises an error."""
    site.sign()
    key = keys.load_public_key(site.key.with_name("key.pub"))
    open_envelope = partial(keys.open_envelope, key=key)
    check = verification.SignatureCheck(files=SignedFiles.KEY, open_envelope=open_envelope)
    path = site.attestations / TESTS
    original = path.read_bytes()
    draw = random.Random(0)  # noqa: S311 - the same mutants each time
    for _ in range(400):
        content = bytearray(original)
        place = draw.randrange(len(content))
        match draw.randrange(4):
            case 0:
                content[place] ^= 1 << draw.randrange(8)
            case 1:
                del content[place : place + draw.randrange(1, 40)]
            case 2:
                content[place:place] = draw.choice((b" ", b"\n", b"=", b"{", b'"', b"\\u0000"))
            case 3:
                content[place] = draw.randrange(256)
        if content != original:
            path.write_bytes(content)
            found = verification.verify(path, site.run, check, TODAY)
            assert found.faults, bytes(content)
    path.write_bytes(original)
    assert not verification.verify(path, site.run, check, TODAY).faults


@pytest.mark.parametrize("name", [TESTS, BUNDLE_FILE])
def test_the_last_byte_counts(site: Site, capsys: Output, name: str) -> None:
    site.sign()
    path = site.attestations / name
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    rejected(site, capsys, f"{name}: ", path=path)


def test_statements_of_an_earlier_call_are_replaced(site: Site) -> None:
    site.decide()
    site.sign()
    site.decision.unlink()
    (site.attestations / "note.txt").write_text("mine")
    site.sign()
    names = {it.name for it in site.attestations.iterdir()}
    assert "verification-summary.json" not in names
    assert "note.txt" in names


def test_a_decision_is_read_from_a_file(site: Site, capsys: Output) -> None:
    path = site.folder / "go.json"
    assert site.attest("--decision", path) == ExitCode.INFRASTRUCTURE
    assert f"error: --decision: No such file or directory: {path}" in capsys.readouterr().err
    path.write_text("{}")
    assert site.attest("--decision", path) == ExitCode.INFRASTRUCTURE
    assert "schema_version: got None, expected 1 to 3" in capsys.readouterr().err
    path.write_text(decision_about(site.run).to_json())
    site.decide()
    site.sign("--identity", "https://ci.example.com/release")
    verifier = site.payload("verification-summary.json")["predicate"]["verifier"]
    assert verifier == {"id": "https://ci.example.com/release"}
    (site.run / "results.json").write_text((site.run / "results.json").read_text() + " ")
    assert site.attest("--decision", path) == ExitCode.USAGE
    assert "the decision is about other results of run" in capsys.readouterr().err


def test_the_same_as_json(site: Site, capsys: Output) -> None:
    site.decide()
    site.sign("--format", "json")
    written = json.loads(capsys.readouterr().out)
    assert (written["run_id"], len(written["files"])) == (RUN_ID, 6)
    words = ["attest", "--verify", str(site.run), "--key", f"{site.key}.pub", "--format", "json"]
    assert cli.main(words) == ExitCode.PASSED
    assert json.loads(capsys.readouterr().out) == {
        "run_id": RUN_ID,
        "key": written["key"],
        "verified": True,
        "errors": [],
        "platforms": {"nvidia": "PASSED", "ascend": "PASSED"},
        "decisions": ["go"],
    }
    (site.run / "nvidia" / "junit.xml").unlink()
    assert cli.main(words) == ExitCode.PRODUCT_FAILURE
    found = json.loads(capsys.readouterr().out)
    assert found["errors"] == ["nvidia/junit.xml: the file is missing"]
    assert (found["verified"], found["run_id"], found["platforms"]) == (False, None, {})


def test_usage_errors(site: Site, capsys: Output) -> None:
    public = str(site.key.with_name("key.pub"))
    cases = {
        ("attest", "2026", "--results", str(site.results)): "got no run '2026' with a results.json",
        ("attest", "../x", "--results", str(site.results)): "got no run '../x'",
        ("attest", "--verify", str(site.run)): "got no --key, expected the public key",
        ("attest", "--verify", str(site.run), "--key", public, "--output", "x"): "cannot be combi",
        ("attest", "--verify", str(site.run), "--key", str(site.key)): "got a private key, expect",
    }
    for words, message in cases.items():
        assert cli.main(words) == ExitCode.USAGE
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        site.attest("--identity", "no uri")
    assert "got 'no uri', expected a URI such as https://" in capsys.readouterr().err


def test_without_the_package_the_remedy_is_named(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setitem(sys.modules, "securesystemslib.dsse", None)
    monkeypatch.delitem(sys.modules, "ci.proof.keys", raising=False)
    monkeypatch.delattr("ci.proof.keys", raising=False)
    assert site.attest("--key", site.key) == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    assert error.startswith("error: attest: the package securesystemslib is not installed\n")
    assert "pip install 'securesystemslib[crypto]~=1.6'" in error
    assert site.attest() == ExitCode.PASSED  # statements alone need no package


def test_digests_of_inputs_are_those_of_the_files(site: Site) -> None:
    site.decide()
    site.sign()
    inputs = site.payload("verification-summary.json")["predicate"]["inputAttestations"]
    assert {it["uri"]: it["digest"]["sha256"] for it in inputs} == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in site.attestations.glob("*.json")
        if path.name != "verification-summary.json"
    }
