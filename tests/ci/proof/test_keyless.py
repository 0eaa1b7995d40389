"""A bundle is verified for its identity alone; what cannot be signed has a remedy.

The public instance of Sigstore cannot be reached here. Its client signs with an instance of ours.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sigstore.models import Bundle, ClientTrustConfig

import ci.proof
from ci import cli
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.proof import keyless
from ci.proof.statements import SignedFiles
from ci.util.process import TOKEN_VARIABLE, inherited_environment
from tests.ci.attested_runs import RUN_ID, decision_about, write_run
from tests.ci.sigstore_instance import LIFETIME, Instance, running_instance

IDENTITY = "https://example.com/operators/.github/workflows/release.yml@refs/tags/v1.2"
ISSUER = "https://ci.example.com"
PAYLOAD = b'{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"gitCommit":"0123"}}]}'
VARIABLES = (
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "BUILDKITE",
    "CIRCLECI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
)
Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TOKEN_VARIABLE, *VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def instance() -> Iterator[Instance]:
    with running_instance(ISSUER) as running:
        yield running


@pytest.fixture
def trust_file(instance: Instance, tmp_path: Path) -> Path:
    path = tmp_path / "trust.json"
    path.write_text(json.dumps(instance.trust()))
    return path


def token(**claims: object) -> str:
    now = int(time.time())
    known = {"aud": "sigstore", "sub": IDENTITY, "iss": ISSUER}
    parts = ({"alg": "none"}, {**known, "iat": now, "exp": now + 60, **claims})
    encoded = (base64.urlsafe_b64encode(json.dumps(it).encode()) for it in parts)
    return b".".join((*encoded, b"")).decode().replace("=", "")  # nothing here checks a signature


def configured(trust: dict[str, Any]) -> ClientTrustConfig:
    return ClientTrustConfig.from_json(json.dumps(trust))


def signed(trust: dict[str, Any], *payloads: bytes) -> list[dict[str, Any]]:
    """Return the bundles of payloads that one certificate signs."""
    signer = keyless.request_signer(configured(trust), {TOKEN_VARIABLE: token()})
    return [json.loads(keyless.sign(it, signer)) for it in payloads]


def opened(
    bundle: object, trust: dict[str, Any], identity: str = IDENTITY, issuer: str = ISSUER
) -> bytes:
    return keyless.bundle_opener(configured(trust), identity, issuer)(json.dumps(bundle))


def log_entry(bundle: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any]
    [entry] = bundle["verificationMaterial"]["tlogEntries"]
    return entry


def test_what_an_identity_signs_is_verified() -> None:
    payloads = [PAYLOAD + b" " * it for it in range(9)]
    with running_instance(ISSUER) as instance:
        trust = instance.trust()
        bundles = signed(trust, *payloads)
    assert [opened(it, trust) for it in bundles] == payloads  # without the instance
    assert [log_entry(it)["logIndex"] for it in bundles] == [str(it) for it in range(9)]


@pytest.mark.parametrize(
    ("identity", "issuer", "message"),
    [
        ("me@example.com", ISSUER, "do not match me@example.com; actual SANs: {'example.com/oper"),
        (IDENTITY.replace("v1.2", "v1.3"), ISSUER, "SANs do not match"),
        (IDENTITY, "https://example.com", f"OIDCIssuer does not match (got '{ISSUER}', expected"),
    ],
)
def test_another_identity_is_refused(
    identity: str, issuer: str, message: str, instance: Instance
) -> None:
    trust = instance.trust()
    [bundle] = signed(trust, PAYLOAD)
    with pytest.raises(ValueError, match=r"^the bundle is not valid: ") as error:
        opened(bundle, trust, identity, issuer)
    assert message in str(error.value)


def other_payload(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payload"] = "e30="


def other_kind(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payloadType"] = "text/plain"


def other_signature(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = "MEUCIQ=="


def no_log(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["tlogEntries"] = []


def no_proof(bundle: dict[str, Any]) -> None:
    log_entry(bundle)["inclusionProof"]["hashes"] = []


def no_promise(bundle: dict[str, Any]) -> None:
    del log_entry(bundle)["inclusionPromise"]


def no_time(bundle: dict[str, Any]) -> None:
    del log_entry(bundle)["integratedTime"]


def other_time(bundle: dict[str, Any]) -> None:
    entry = log_entry(bundle)
    entry["integratedTime"] = str(int(entry["integratedTime"]) + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_payload, "DSSE: invalid signature"),
        (other_kind, "DSSE: invalid signature"),
        (other_signature, "DSSE: invalid signature"),
        (no_log, "expected exactly one log entry"),
        (no_proof, "inclusion proof has wrong size"),
        (no_promise, "must contain an inclusion promise or signed timestamp"),
        (no_time, "not enough sources of verified time"),
        (other_time, "SET: invalid inclusion promise"),
    ],
)
def test_a_changed_bundle_is_refused(
    change: Callable[[dict[str, Any]], None], message: str, instance: Instance
) -> None:
    trust = instance.trust()
    _, bundle = signed(trust, b"{}", PAYLOAD)  # a proof of the first entry has no hashes
    change(bundle)
    with pytest.raises(ValueError, match=rf"(got no Sigstore bundle|is not valid): .*{message}"):
        opened(bundle, trust)


def test_an_entry_of_another_statement_is_refused(instance: Instance) -> None:
    trust = instance.trust()
    bundle, other = signed(trust, PAYLOAD, b"{}")
    bundle["dsseEnvelope"] = other["dsseEnvelope"]
    with pytest.raises(ValueError, match="log entry payload hash does not match bundle"):
        opened(bundle, trust)


def test_a_signature_after_the_certificate_expired_is_refused(
    monkeypatch: pytest.MonkeyPatch, instance: Instance
) -> None:
    trust = instance.trust()
    lifetime_s = int(LIFETIME.total_seconds())
    monkeypatch.setattr(instance.log, "ahead_s", lifetime_s - 60)
    [bundle] = signed(trust, PAYLOAD)
    assert opened(bundle, trust) == PAYLOAD
    monkeypatch.setattr(instance.log, "ahead_s", lifetime_s + 60)
    [bundle] = signed(trust, PAYLOAD)
    with pytest.raises(ValueError, match="failed to build timestamp certificate chain: "):
        opened(bundle, trust)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("certificateAuthorities", "failed to build timestamp certificate chain: "),
        ("ctlogs", "failed to verify SCT on signing certificate: "),
        ("tlogs", "invalid log entry: checkpoint: invalid signature"),
    ],
)
def test_another_instance_is_refused(part: str, message: str, instance: Instance) -> None:
    trust = instance.trust()
    [bundle] = signed(trust, PAYLOAD)
    other = Instance(instance.address, ISSUER).trust()
    trust["trustedRoot"][part] = other["trustedRoot"][part]
    with pytest.raises(ValueError, match=f"^the bundle is not valid: {message}"):
        opened(bundle, trust)


@pytest.mark.parametrize("text", ["", "{}", "[]", "\udcff", '{"payload": ""}', "[" * 100_000])
def test_what_is_no_bundle_is_refused(text: str, instance: Instance) -> None:
    with pytest.raises(ValueError, match="got no Sigstore bundle: "):
        keyless.bundle_opener(configured(instance.trust()), IDENTITY, ISSUER)(text)


@pytest.mark.parametrize(
    "environ",
    [{}, {TOKEN_VARIABLE: ""}, {TOKEN_VARIABLE: "a secret"}, {TOKEN_VARIABLE: token(exp=1)}],
)
def test_without_an_identity_nothing_is_requested(
    environ: dict[str, str], trust_file: Path
) -> None:
    with pytest.raises(InfrastructureError, match=r"got no (valid )?identity token") as error:
        keyless.request_signer(keyless.read_trust(trust_file), environ)
    assert "id-token: write" in str(error.value.remedy)
    assert (environ.get(TOKEN_VARIABLE) or "secret") not in str(error.value)


def test_other_programs_do_not_get_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    assert TOKEN_VARIABLE not in inherited_environment()


def test_an_identity_that_the_authority_does_not_know(trust_file: Path) -> None:
    unknown = {TOKEN_VARIABLE: token(iss="https://example.com")}
    with pytest.raises(InfrastructureError, match="got no certificate: 400 Client Error: "):
        keyless.request_signer(keyless.read_trust(trust_file), unknown)


def test_a_log_that_cannot_be_reached(instance: Instance) -> None:
    trust = instance.trust()
    nowhere = Instance("http://127.0.0.1:1", ISSUER).trust()["signingConfig"]
    trust["signingConfig"]["rekorTlogUrls"] = nowhere["rekorTlogUrls"]
    with pytest.raises(InfrastructureError, match="a statement cannot be signed: ") as error:
        signed(trust, PAYLOAD)
    assert error.value.remedy == keyless.SERVICE_REMEDY


def test_without_a_network_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Output
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token())
    write_run(tmp_path / "results")
    trust = tmp_path / "trust.json"
    trust.write_text(json.dumps(Instance("http://127.0.0.1:1", ISSUER).trust()))
    words = ("attest", RUN_ID, "--results", str(tmp_path / "results"), "--sigstore")
    assert cli.main([*words, "--trust-config", str(trust)]) == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    assert error.startswith("error: attest: Sigstore: got no certificate: ")
    assert "Check the network and its proxy." in error
    assert not (tmp_path / "results" / RUN_ID / "attestations").exists()


def test_a_file_that_is_no_trust_configuration(instance: Instance, tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    [bundle] = signed(instance.trust(), PAYLOAD)
    for text in ("", "{}", json.dumps(bundle)):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"--trust-config: .*: got .*, expected application/"):
            keyless.read_trust(path)
    with pytest.raises(InfrastructureError, match=r"--trust-config: No such file or directory: "):
        keyless.read_trust(tmp_path / "missing")


def write_decided_run(folder: Path) -> tuple[Path, list[str]]:
    """Write a run and a decision; return its folder, and the words that attest both."""
    run = write_run(folder / "results")
    decision = folder / "decision.json"
    decision.write_text(decision_about(run).to_json())
    words = ["attest", RUN_ID, "--results", str(run.parent), "--decision", str(decision)]
    return run, words


def test_a_signed_run_is_verified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Output
) -> None:
    run, words = write_decided_run(tmp_path)
    trust = tmp_path / "trust.json"
    monkeypatch.setenv(TOKEN_VARIABLE, token())
    with running_instance(ISSUER) as instance:
        trust.write_text(json.dumps(instance.trust()))
        assert cli.main([*words, "--sigstore", "--trust-config", str(trust)]) == ExitCode.PASSED
    assert "5 attestations" in (shown := capsys.readouterr().out)
    assert "signed with Sigstore; attestations.sigstore.jsonl has all" in shown

    monkeypatch.delenv(TOKEN_VARIABLE)  # and without the instance
    words = ["attest", "--verify", str(run), "--issuer", ISSUER, "--trust-config", str(trust)]
    assert cli.main([*words, "--signer", IDENTITY]) == ExitCode.PASSED
    assert f"verified, signed as {IDENTITY} of {ISSUER}\n" in capsys.readouterr().out
    other = IDENTITY.replace("v1.2", "v1.3")
    assert cli.main([*words, "--signer", other]) == ExitCode.PRODUCT_FAILURE
    assert "SANs do not match" in capsys.readouterr().err
    (run / "nvidia" / "pytest.jsonl").write_text("{}\n")
    assert cli.main([*words, "--signer", IDENTITY]) == ExitCode.PRODUCT_FAILURE
    assert "nvidia/pytest.jsonl: " in capsys.readouterr().err


def test_the_statements_are_what_is_signed(
    monkeypatch: pytest.MonkeyPatch, trust_file: Path, tmp_path: Path, instance: Instance
) -> None:
    run, words = write_decided_run(tmp_path)
    assert cli.main(words) == ExitCode.PASSED
    unsigned = {it.name: it.read_bytes().rstrip() for it in (run / "statements").iterdir()}
    other = run / "attestations" / "nvidia.test-result.json"  # what a key signed stays
    other.parent.mkdir()
    other.write_text("{}")
    monkeypatch.setenv(TOKEN_VARIABLE, token())
    assert cli.main([*words, "--sigstore", "--trust-config", str(trust_file)]) == ExitCode.PASSED

    files = {it: it.removesuffix(".json") + SignedFiles.SIGSTORE.end for it in unsigned}
    texts = {it: (run / "attestations" / file).read_text() for it, file in files.items()}
    payloads = {it: opened(json.loads(text), instance.trust()) for it, text in texts.items()}
    summary = "verification-summary.json"  # which names the other files
    inputs = json.loads(payloads.pop(summary))["predicate"]["inputAttestations"]
    assert {it["uri"] for it in inputs} == {files[it] for it in payloads}
    del unsigned[summary]
    assert payloads == unsigned
    whole = run / "attestations" / "attestations.sigstore.jsonl"
    assert {it.name for it in whole.parent.iterdir()} == {whole.name, other.name, *files.values()}
    lines = whole.read_text().splitlines()
    assert [Bundle.from_json(it).to_json() for it in lines] == lines


def test_only_the_bundles_of_a_folder_are_verified(
    trust_file: Path, tmp_path: Path, instance: Instance, capsys: Output
) -> None:
    run = write_run(tmp_path / "results")
    (run / "attestations").mkdir()
    (run / "attestations" / "cpu.test-result.json").write_text("by a key\n")
    words = ["attest", "--verify", str(run), "--trust-config", str(trust_file)]
    words += ["--signer", IDENTITY, "--issuer", ISSUER]
    assert cli.main(words) == ExitCode.USAGE
    assert "got no attestations\n" in (shown := capsys.readouterr().err)
    assert "`attest RUN --sigstore`" in shown
    [bundle] = signed(instance.trust(), b"{}")
    (run / "attestations" / "cpu.test-result.sigstore.json").write_text(json.dumps(bundle))
    assert cli.main([*words, "--format", "json"]) == ExitCode.PRODUCT_FAILURE
    found = json.loads(capsys.readouterr().out)
    assert (found["verified"], found["signer"], found["issuer"]) == (False, IDENTITY, ISSUER)
    [error] = found["errors"]  # the signature is valid; the statement is none
    assert "_type: Field required" in error


def test_without_the_package_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Output
) -> None:
    write_run(tmp_path / "results")
    monkeypatch.setitem(sys.modules, "sigstore.dsse", None)
    monkeypatch.delitem(sys.modules, "ci.proof.keyless")
    monkeypatch.delattr(ci.proof, "keyless")
    words = ("attest", RUN_ID, "--results", str(tmp_path / "results"), "--sigstore")
    assert cli.main(words) == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    assert error.startswith("error: attest: the package sigstore is not installed\n")
    assert "pip install 'sigstore~=4.5'" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sigstore", "--key", "k"), "attest: got --key and Sigstore's options"),
        (("--trust-config", "t"), "--trust-config: got neither --sigstore"),
        (("--signer", "me"), "got --signer or --issuer without --verify"),
        (("--verify", "x", "--signer", "me"), "got no --signer or no --issuer"),
        (("--verify", "x", "--sigstore"), "got no --signer or no --issuer"),
        (("--verify", "x", "--signer", "m", "--issuer", "u", "--key", "k"), "got --key and Sigst"),
    ],
)
def test_wrong_combinations(words: tuple[str, ...], message: str, capsys: Output) -> None:
    assert cli.main(["attest", *words]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
