"""Keys of both kinds sign and verify; a file that is none has an error that does not quote it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from ci.errors import UsageError
from ci.proof.keys import load_public_key, load_signer, open_envelope, sign
from ci.util.process import PASSPHRASE_VARIABLE, inherited_environment
from tests.ci.attested_runs import write_key

PAYLOAD = b'{"_type":"https://in-toto.io/Statement/v1"}'
SECRET = "correct horse"  # noqa: S105


def public(path: Path) -> Path:
    return path.with_name(f"{path.name}.pub")


@pytest.mark.parametrize("passphrase", ["", SECRET])
@pytest.mark.parametrize("kind", ["ssh", "pem"])
def test_what_a_key_signs_is_verified(tmp_path: Path, kind: str, passphrase: str) -> None:
    path = write_key(tmp_path / "key", kind, passphrase=passphrase)
    signer = load_signer(path, {PASSPHRASE_VARIABLE: passphrase})
    text = sign(PAYLOAD, signer)
    assert open_envelope(text, load_public_key(public(path))) == PAYLOAD
    assert sign(PAYLOAD, signer) == text


def test_both_forms_of_a_key_are_the_same_key(tmp_path: Path) -> None:
    signers = [load_signer(write_key(tmp_path / it, it), {}) for it in ("ssh", "pem")]
    assert sign(PAYLOAD, signers[0]) == sign(PAYLOAD, signers[1])


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o610])
def test_a_key_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_key(tmp_path / "key")
    path.chmod(mode)
    with pytest.raises(UsageError, match=f"got mode {mode:o}, expected 600") as raised:
        load_signer(path, {})
    assert raised.value.remedy == f"Run: chmod 600 {path}"


def test_a_passphrase_is_asked_for_on_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_key(tmp_path / "key", passphrase=SECRET)
    with pytest.raises(UsageError, match="needs a passphrase, and there is no terminal"):
        load_signer(path, {})
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("ci.proof.keys.getpass", lambda _: SECRET)
    assert load_signer(path, {}).public_key == load_public_key(public(path))


def test_a_wrong_passphrase_is_not_quoted(tmp_path: Path) -> None:
    path = write_key(tmp_path / "key", "pem", passphrase=SECRET)
    with pytest.raises(UsageError, match=r"key: the passphrase does not fit$") as raised:
        load_signer(path, {PASSPHRASE_VARIABLE: "wrong horse"})
    assert "horse" not in f"{raised.value}{raised.value.remedy}"


def test_other_programs_do_not_get_the_passphrase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLE, SECRET)
    assert PASSPHRASE_VARIABLE not in inherited_environment()


def garbage(path: Path) -> None:
    path.write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_kind(path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(key.private_bytes(*form))
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    public(path).write_bytes(shown)


def huge(path: Path) -> None:
    path.write_bytes(b"x" * 100_000)


def folder(path: Path) -> None:
    path.mkdir(mode=0o700)


def missing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (garbage, "got no private key that can be read, expected an ed25519 key"),
        (empty, "got no private key that can be read"),
        (other_kind, "got a key of another kind, expected an ed25519 key"),
        (huge, "got more than 65,536 bytes"),
        (folder, "got no regular file"),
        (missing, "there is no such file"),
    ],
)
def test_a_file_that_is_no_private_key_is_refused(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "key"
    make(path)
    if path.is_file():
        path.chmod(0o600)
    with pytest.raises(UsageError, match=f"^--key: {path}: {message}"):
        load_signer(path, {})


def test_a_file_that_is_no_public_key_is_refused(tmp_path: Path) -> None:
    path = write_key(tmp_path / "key")
    with pytest.raises(UsageError, match="got a private key, expected the public key") as raised:
        load_public_key(path)
    assert "ssh-keygen -y -f" in str(raised.value.remedy)
    public(path).write_text("ssh-ed25519 AAAA\n")
    with pytest.raises(UsageError, match="got no public key that can be read"):
        load_public_key(public(path))
    other_kind(path)
    with pytest.raises(UsageError, match="got a key of another kind"):
        load_public_key(public(path))


@pytest.fixture
def envelope(tmp_path: Path) -> dict[str, object]:
    text = sign(PAYLOAD, load_signer(write_key(tmp_path / "key"), {}))
    document: dict[str, object] = json.loads(text)
    return document


def spelled(document: object) -> str:
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signatures": []}, "got no signature"),
        ({"payloadType": "text/plain"}, "got payloadType 'text/plain', expected application/vnd"),
        ({"payload": "e30="}, "the signature does not fit the content"),
        ({"payload": "e31="}, "in another spelling than `attest` writes"),
        ({"payload": "-_-_"}, "(?i)base64|padding|alphabet|character"),
        ({"payload": "\ud800"}, "ASCII"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"signatures": [{"keyid": "a", "sig": "e30="}]}, "got a signature of key a, expected "),
        ({"signatures": [{"keyid": "a"}]}, r"signatures\.0\.sig: Field required"),
        ({"signatures": [{"keyid": "a", "sig": ""}] * 17}, "at most 16 items"),
        ({"signatures": [{"keyid": "a", "sig": ""}] * 2}, "Multiple signatures found"),
    ],
)
def test_an_envelope_that_was_changed_is_refused(
    envelope: dict[str, object], tmp_path: Path, change: dict[str, object], message: str
) -> None:
    key = load_public_key(public(tmp_path / "key"))
    assert open_envelope(spelled(envelope), key) == PAYLOAD
    with pytest.raises(ValueError, match=message):
        open_envelope(spelled({**envelope, **change}), key)


def test_an_envelope_has_one_spelling(envelope: dict[str, object], tmp_path: Path) -> None:
    key = load_public_key(public(tmp_path / "key"))
    with pytest.raises(ValueError, match="in another spelling than `attest` writes"):
        open_envelope(json.dumps(envelope, indent=1), key)
    with pytest.raises(ValueError, match="got a statement without a signature"):
        open_envelope(PAYLOAD.decode(), key)
