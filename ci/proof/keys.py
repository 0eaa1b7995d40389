"""Ed25519 keys of PEM and OpenSSH files, and the envelopes that they sign.

Envelope: https://github.com/secure-systems-lab/dsse/blob/master/envelope.md
"""

from __future__ import annotations

import base64
import os
import shlex
import stat
import sys
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import Annotated, Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from ci.errors import InfrastructureError, UsageError
from ci.model.results import describe_faults
from ci.proof.statements import PAYLOAD_TYPE, canonical
from ci.util.lines import parse_object
from ci.util.process import PASSPHRASE_VARIABLE
from ci.util.text import os_reason

LARGEST_KEY = 1 << 16  # bytes; an ed25519 key has 400
MOST_SIGNATURES = 16
OTHERS = stat.S_IRWXG | stat.S_IRWXO
SSH_HEAD, PRIVATE_END = b"-----BEGIN OPENSSH PRIVATE KEY-----", b" PRIVATE KEY-----"
EXPECTED = "expected an ed25519 key in a PEM (PKCS#8) or OpenSSH file"
MAKE_KEY = "Make one: ssh-keygen -t ed25519 -f KEY. Its public key is KEY.pub."
# What the loaders raise for content that is no key, or a key of another kind.
_NO_KEY = (ValueError, TypeError, UnsupportedAlgorithm)


def load_signer(path: Path, environ: Mapping[str, str]) -> CryptoSigner:
    """Load a private key that only its owner can read.

    The passphrase is that of the environment, or asked for on a terminal. Raises ``UsageError``.
    No error quotes the content.
    """
    content = _read_key(path, private=True)
    load = load_ssh_private_key if content.startswith(SSH_HEAD) else load_pem_private_key
    key = _private_key(path, lambda passphrase: load(content, passphrase), environ)
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"--key: {path}: got a key of another kind, {EXPECTED}", remedy=MAKE_KEY)
    return CryptoSigner(key)


def _private_key(
    path: Path, load: Callable[[bytes | None], object], environ: Mapping[str, str]
) -> object:
    try:
        return load(None)
    except TypeError:  # it has a passphrase
        passphrase = _passphrase(path, environ)
    except _NO_KEY:
        message = f"--key: {path}: got no private key that can be read, {EXPECTED}"
        raise UsageError(message, remedy=MAKE_KEY) from None
    try:
        return load(passphrase)
    except UnsupportedAlgorithm as error:  # OpenSSH's encryption needs a package
        message = f"--key: {path}: the key cannot be decrypted: {error}"
        raise UsageError(message, remedy="Install it: pip install 'cryptography[ssh]'") from None
    except _NO_KEY:
        message = f"--key: {path}: the passphrase does not fit"
        remedy = f"Set {PASSPHRASE_VARIABLE}, or unset it to be asked."
        raise UsageError(message, remedy=remedy) from None


def _passphrase(path: Path, environ: Mapping[str, str]) -> bytes:
    if value := environ.get(PASSPHRASE_VARIABLE):
        return value.encode(errors="surrogateescape")
    if not sys.stdin.isatty():
        message = f"--key: {path}: the key needs a passphrase, and there is no terminal to ask on"
        raise UsageError(message, remedy=f"Set the variable {PASSPHRASE_VARIABLE}.")
    try:
        return getpass(f"Passphrase of {path}: ").encode(errors="surrogateescape")
    except EOFError:
        raise UsageError(f"--key: {path}: got no passphrase") from None


def load_public_key(path: Path) -> SSlibKey:
    """Load a public key; raises ``UsageError``."""
    content = _read_key(path, private=False)
    if PRIVATE_END in content:
        message = f"--key: {path}: got a private key, expected the public key that belongs to it"
        key_file, shown = shlex.quote(str(path)), shlex.quote(f"{path}.pub")
        remedy = f"Name {path}.pub, or write it: ssh-keygen -y -f {key_file} > {shown}"
        raise UsageError(message, remedy=remedy)
    is_ssh = content.startswith(b"ssh-")
    try:
        key = load_ssh_public_key(content) if is_ssh else load_pem_public_key(content)
    except _NO_KEY:
        message = f"--key: {path}: got no public key that can be read, {EXPECTED}"
        raise UsageError(message, remedy="Name the .pub file of the key that signed.") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(f"--key: {path}: got a key of another kind, {EXPECTED}", remedy=MAKE_KEY)
    return SSlibKey.from_crypto(key)


def _read_key(path: Path, *, private: bool) -> bytes:
    try:
        if not path.is_file() and path.exists():
            raise UsageError(f"--key: {path}: got no regular file, {EXPECTED}")
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if private and mode & OTHERS:
                got = f"got mode {stat.S_IMODE(mode):o}, expected 600"
                message = f"--key: {path}: other users can use this private key: {got}"
                raise UsageError(message, remedy=f"Run: {shlex.join(['chmod', '600', str(path)])}")
            content = file.read(LARGEST_KEY + 1)
    except FileNotFoundError:
        raise UsageError(f"--key: {path}: there is no such file", remedy=MAKE_KEY) from None
    except OSError as error:
        raise InfrastructureError(f"--key: {os_reason(error)}") from error
    if len(content) > LARGEST_KEY:
        message = f"--key: {path}: got more than {LARGEST_KEY:,} bytes, {EXPECTED}"
        raise UsageError(message, remedy=MAKE_KEY)
    return content


class _Signature(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keyid: str
    sig: str


class _EnvelopeDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    payload: str
    payload_type: Annotated[str, Field(alias="payloadType")]
    signatures: Annotated[list[_Signature], Field(max_length=MOST_SIGNATURES)]


def sign(payload: bytes, signer: CryptoSigner) -> str:
    """Return the text of an envelope: always the same, as ed25519 is deterministic."""
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    envelope.sign(signer)
    return canonical(envelope.to_dict())


def open_envelope(text: str, key: SSlibKey) -> bytes:
    """Return the payload of an envelope that this key signed; raises ``ValueError``.

    The text must be as ``sign`` writes it, so any other byte is an error: JSON and base64 have
    several spellings of a value.
    """
    document = parse_object(text)
    if "_type" in document and "payload" not in document:
        raise ValueError("got a statement without a signature")
    try:
        content = _EnvelopeDocument.model_validate(document).model_dump(by_alias=True)
    except ValidationError as error:
        raise ValueError(describe_faults(error)) from error
    if content["payloadType"] != PAYLOAD_TYPE:
        got = f"got payloadType {content['payloadType']!r:.100}"
        raise ValueError(f"{got}, expected {PAYLOAD_TYPE}")
    if not content["signatures"]:
        raise ValueError("got no signature")
    _check_spelling(text, content)
    envelope = Envelope.from_dict(content)
    try:
        envelope.verify([key], 1)
    except VerificationError:
        if key.keyid in envelope.signatures:
            raise ValueError("the signature does not fit the content") from None
        others = ", ".join(sorted(envelope.signatures))
        raise ValueError(f"got a signature of key {others:.100}, expected {key.keyid}") from None
    payload: bytes = envelope.payload
    return payload


def _check_spelling(text: str, content: dict[str, Any]) -> None:
    values = [content["payload"], *(it["sig"] for it in content["signatures"])]
    decoded = [base64.b64decode(it, validate=True) for it in values]
    if text != canonical(content) or [base64.b64encode(it).decode() for it in decoded] != values:
        raise ValueError("got JSON or base64 in another spelling than `attest` writes")
