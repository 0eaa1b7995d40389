"""A real bundle is verified for its identity alone; what cannot be signed has a remedy.

No instance of Sigstore can be reached here: nothing is signed for real.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from sigstore import dsse
from sigstore.models import Bundle

import ci.proof
from ci import cli
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.proof import keyless
from ci.proof.statements import SignedFiles
from ci.util.process import TOKEN_VARIABLE, inherited_environment
from tests.ci.attested_runs import RUN_ID, decision_about, write_run

DATA = Path("tests/ci/data")
BUNDLE, TRUST = DATA / "sigstore-bundle.json", DATA / "sigstore-trust.json"
PROJECT = "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon"
WORKFLOW = ".github/workflows/extremely-dangerous-oidc-beacon.yml@refs/heads/main"
IDENTITY = f"{PROJECT}/{WORKFLOW}"
ISSUER = "https://token.actions.githubusercontent.com"
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


def opened(text: str, identity: str = IDENTITY, issuer: str = ISSUER) -> bytes:
    return keyless.bundle_opener(keyless.read_trust(TRUST), identity, issuer)(text)


def test_a_real_bundle_is_verified() -> None:
    statement = json.loads(opened(BUNDLE.read_text()))
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert [it["name"] for it in statement["subject"]] == ["a.txt"]


@pytest.mark.parametrize(
    ("identity", "issuer", "message"),
    [
        ("me@example.com", ISSUER, "do not match me@example.com; actual SANs: {'github.com/sigst"),
        (IDENTITY.replace("main", "mine"), ISSUER, "SANs do not match"),
        (IDENTITY, "https://example.com", f"OIDCIssuer does not match (got '{ISSUER}', expected"),
    ],
)
def test_another_identity_is_refused(identity: str, issuer: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"^the bundle is not valid: ") as error:
        opened(BUNDLE.read_text(), identity, issuer)
    assert message in str(error.value)


def other_payload(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payload"] = "e30="


def other_kind(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["payloadType"] = "text/plain"


def other_signature(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = "MEUCIQ=="


def no_log(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["tlogEntries"] = []


def no_time(bundle: dict[str, Any]) -> None:
    bundle["verificationMaterial"]["timestampVerificationData"] = {}


@pytest.mark.parametrize("change", [other_payload, other_kind, other_signature, no_log, no_time])
def test_a_changed_bundle_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    bundle = json.loads(BUNDLE.read_text())
    change(bundle)
    with pytest.raises(ValueError, match=r"got no Sigstore bundle|the bundle is not valid"):
        opened(json.dumps(bundle))


@pytest.mark.parametrize("text", ["", "{}", "[]", "\udcff", '{"payload": ""}', "[" * 100_000])
def test_what_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="got no Sigstore bundle: "):
        opened(text)


def token(**claims: object) -> str:
    now = int(time.time())
    known = {"aud": "sigstore", "sub": "me", "iss": "https://ci.example.com"}
    parts = ({"alg": "none"}, {**known, "iat": now, "exp": now + 60, **claims})
    encoded = (base64.urlsafe_b64encode(json.dumps(it).encode()) for it in parts)
    return b".".join((*encoded, b"")).decode().replace("=", "")  # nothing here checks a signature


@pytest.mark.parametrize(
    "environ",
    [{}, {TOKEN_VARIABLE: ""}, {TOKEN_VARIABLE: "a secret"}, {TOKEN_VARIABLE: token(exp=1)}],
)
def test_without_an_identity_nothing_is_requested(environ: dict[str, str]) -> None:
    with pytest.raises(InfrastructureError, match=r"got no (valid )?identity token") as error:
        keyless.request_signer(keyless.read_trust(TRUST), environ)
    assert "id-token: write" in str(error.value.remedy)
    assert (environ.get(TOKEN_VARIABLE) or "secret") not in str(error.value)


def test_other_programs_do_not_get_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "token")
    assert TOKEN_VARIABLE not in inherited_environment()


class Authority(BaseHTTPRequestHandler):
    """A certificate authority that refuses."""

    asked: list[str]

    def do_POST(self) -> None:
        assert b"CERTIFICATE REQUEST" in base64.b64decode(
            self._request()["certificateSigningRequest"]
        )
        self.asked.append(self.headers["Authorization"])
        self.send_response(400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _request(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return request

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def authority() -> Iterator[HTTPServer]:
    Authority.asked = []
    with HTTPServer(("127.0.0.1", 0), Authority) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


def write_trust(path: Path, authority: str) -> Path:
    """Write the configuration of an instance with this certificate authority."""
    trust = json.loads(TRUST.read_text())
    trust["signingConfig"]["caUrls"][0]["url"] = authority
    path.write_text(json.dumps(trust))
    return path


def test_the_certificate_is_requested_for_the_token(authority: HTTPServer, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{authority.server_port}"
    trust = keyless.read_trust(write_trust(tmp_path / "trust.json", address))
    identity = token()
    with pytest.raises(InfrastructureError, match="got no certificate: 400 Client Error: "):
        keyless.request_signer(trust, {TOKEN_VARIABLE: identity})
    assert Authority.asked == [f"Bearer {identity}"]


def test_without_a_network_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Output
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token())
    write_run(tmp_path / "results")
    trust = write_trust(tmp_path / "trust.json", "http://127.0.0.1:1")
    words = ("attest", RUN_ID, "--results", str(tmp_path / "results"), "--sigstore")
    assert cli.main([*words, "--trust-config", str(trust)]) == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    assert error.startswith("error: attest: Sigstore: got no certificate: ")
    assert "Check the network and its proxy." in error
    assert not (tmp_path / "results" / RUN_ID / "attestations").exists()


def test_a_file_that_is_no_trust_configuration(tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    for text in ("", "{}", BUNDLE.read_text()):
        path.write_text(text)
        with pytest.raises(UsageError, match=r"--trust-config: .*: got .*, expected application/"):
            keyless.read_trust(path)
    with pytest.raises(InfrastructureError, match=r"--trust-config: No such file or directory: "):
        keyless.read_trust(tmp_path / "missing")


class RecordedSigner:
    """Signs statements as the library does, and returns a bundle of another one.

    A bundle of its own would need a certificate, and an entry in a log.
    """

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.signed: list[bytes] = []

    def sign_dsse(self, statement: dsse.Statement) -> Bundle:
        envelope = dsse._sign(self.key, statement)
        self.signed.append(dsse._verify(self.key.public_key(), envelope))
        return Bundle.from_json(BUNDLE.read_text())


def test_the_statements_are_what_is_signed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Output
) -> None:
    run = write_run(tmp_path / "results")
    decision = tmp_path / "decision.json"
    decision.write_text(decision_about(run).to_json())
    words = ["attest", RUN_ID, "--results", str(tmp_path / "results"), "--decision", str(decision)]
    assert cli.main(words) == ExitCode.PASSED
    unsigned = {it.name: it.read_text().rstrip() for it in (run / "statements").iterdir()}
    signer = RecordedSigner()
    monkeypatch.setattr(keyless, "request_signer", lambda *_: signer)
    other = run / "attestations" / "nvidia.test-result.json"  # what a key signed stays
    other.parent.mkdir()
    other.write_text("{}")
    sigstore = (*words, "--sigstore", "--trust-config", str(TRUST))
    assert cli.main(sigstore) == ExitCode.PASSED

    inputs = "verification-summary.json"  # which names the other files
    payloads = [it.decode() for it in signer.signed]
    assert sorted(payloads[:-1]) == sorted(unsigned[it] for it in unsigned if it != inputs)
    summary = json.loads(payloads[-1])["predicate"]["inputAttestations"]
    written = {it.name for it in (run / "attestations").iterdir()} - {other.name}
    ends = {it.removesuffix(".json") + SignedFiles.SIGSTORE.end for it in unsigned}
    assert written == {*ends, "attestations.sigstore.jsonl"}
    assert {it["uri"] for it in summary} == {it for it in ends if not it.startswith("verif")}
    lines = (run / "attestations" / "attestations.sigstore.jsonl").read_text().splitlines()
    assert [Bundle.from_json(it).to_json() for it in lines] == lines
    assert "5 attestations" in (shown := capsys.readouterr().out)
    assert "signed with Sigstore; attestations.sigstore.jsonl has all" in shown


def test_only_the_bundles_of_a_folder_are_verified(tmp_path: Path, capsys: Output) -> None:
    run = write_run(tmp_path / "results")
    (run / "attestations").mkdir()
    (run / "attestations" / "cpu.test-result.json").write_text("by a key\n")
    words = ["attest", "--verify", str(run), "--trust-config", str(TRUST), "--signer", IDENTITY]
    words += ["--issuer", ISSUER]
    assert cli.main(words) == ExitCode.USAGE
    assert "got no attestations\n" in (shown := capsys.readouterr().err)
    assert "`attest RUN --sigstore`" in shown
    (run / "attestations" / "cpu.test-result.sigstore.json").write_text(BUNDLE.read_text())
    assert cli.main([*words, "--format", "json"]) == ExitCode.PRODUCT_FAILURE
    found = json.loads(capsys.readouterr().out)
    assert (found["verified"], found["signer"], found["issuer"]) == (False, IDENTITY, ISSUER)
    [error] = found["errors"]  # the signature is valid; the statement has no run
    assert "runDetails.metadata: Field required" in error


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
        (("--trust-config", "t"), "--trust-config: got no --sigstore"),
        (("--signer", "me"), "got --signer or --issuer without --verify"),
        (("--verify", "x", "--signer", "me"), "got not both --signer and --issuer"),
        (("--verify", "x", "--sigstore"), "got not both --signer and --issuer"),
        (("--verify", "x", "--signer", "m", "--issuer", "u", "--key", "k"), "got --key and Sigst"),
    ],
)
def test_wrong_combinations(words: tuple[str, ...], message: str, capsys: Output) -> None:
    assert cli.main(["attest", *words]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
