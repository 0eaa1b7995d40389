"""Signatures without a key of one's own: Sigstore bundles, for the identity of a job or person.

A bundle has the envelope, the short-lived certificate of its key, and an entry of a public log:
https://docs.sigstore.dev/about/bundle/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sigstore.dsse import Statement
from sigstore.models import Bundle, ClientTrustConfig
from sigstore.oidc import IdentityError, IdentityToken, detect_credential
from sigstore.sign import Signer, SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity

from ci.errors import InfrastructureError, UsageError
from ci.proof.statements import PAYLOAD_TYPE
from ci.util.process import TOKEN_VARIABLE
from ci.util.text import first_line, os_reason

TOKEN_REMEDY = (
    "Run it in a CI job that can get one (GitHub: `permissions: id-token: write`; GitLab:"
    f" `id_tokens:` with {TOKEN_VARIABLE}), set {TOKEN_VARIABLE} to a token for the audience"
    " sigstore, or sign with a key: --key KEY"
)
SERVICE_REMEDY = (
    "Check the network and its proxy. For an instance other than the public one, name its"
    " configuration: --trust-config FILE"
)


def read_trust(path: Path | None) -> ClientTrustConfig:
    """Read the services and roots of an instance; without a path, request the public one's.

    Raises ``UsageError`` for a file without them, ``InfrastructureError`` if they cannot be read.
    """
    if path is None:
        try:
            return ClientTrustConfig.production()
        except Exception as error:  # the library's errors have no common class
            raise _service_error("got no keys of the public instance", error) from error
    try:
        trust = ClientTrustConfig.from_json(path.read_text(encoding="utf-8"))
        _ = trust.trusted_root, trust.signing_config  # read on access
    except OSError as error:
        raise InfrastructureError(f"--trust-config: {os_reason(error)}") from error
    except Exception as error:
        got = f"got {type(error).__name__}: {first_line(str(error))}"
        expected = f"expected {ClientTrustConfig.ClientTrustConfigType.CONFIG_0_1}"
        raise UsageError(f"--trust-config: {path}: {got}, {expected}") from error
    return trust


def request_signer(trust: ClientTrustConfig, environ: Mapping[str, str]) -> Signer:
    """Request a certificate for the identity of this process, valid for some minutes.

    Raises ``InfrastructureError``.
    """
    token = _identity_token(environ)
    try:
        return Signer(token, SigningContext.from_trust_config(trust))
    except Exception as error:
        raise _service_error("got no certificate", error) from error


def _identity_token(environ: Mapping[str, str]) -> IdentityToken:
    try:
        text = environ.get(TOKEN_VARIABLE) or detect_credential()
        if text is None:
            places = f"of a CI job or in {TOKEN_VARIABLE}"
            message = f"attest: Sigstore: got no identity token, expected one {places}"
            raise InfrastructureError(message, remedy=TOKEN_REMEDY)
        return IdentityToken(text)
    except IdentityError as error:
        message = f"attest: Sigstore: got no valid identity token: {first_line(str(error))}"
        raise InfrastructureError(message, remedy=TOKEN_REMEDY) from error


class _Statement(Statement):  # type: ignore[misc]  # not installed where types are checked
    """A statement that may have the commit of its sources as a subject.

    The model of the library takes digests of files alone, and does not know ``gitCommit``.
    """

    def __init__(self, contents: bytes) -> None:
        self._contents = contents


def sign(payload: bytes, signer: Signer) -> str:
    """Return the text of a bundle, another one each time; raises ``InfrastructureError``."""
    try:
        text: str = signer.sign_dsse(_Statement(payload)).to_json()
    except Exception as error:
        raise _service_error("a statement cannot be signed", error) from error
    return text


def bundle_opener(trust: ClientTrustConfig, identity: str, issuer: str) -> Callable[[str], bytes]:
    """Return what verifies a bundle for one identity; see ``open_bundle``."""
    verifier = Verifier(trusted_root=trust.trusted_root)
    return partial(
        open_bundle, verifier=verifier, policy=Identity(identity=identity, issuer=issuer)
    )


def open_bundle(text: str, verifier: Verifier, policy: Identity) -> bytes:
    """Return the payload of a bundle that this identity signed; raises ``ValueError``.

    Nothing is requested: the bundle has the proof of its entry in the log.
    """
    try:
        bundle = Bundle.from_json(text)
    except Exception as error:  # of several parsers, for a file that anyone may have written
        raise ValueError(f"got no Sigstore bundle: {first_line(str(error))}") from error
    try:
        kind: str
        payload: bytes
        kind, payload = verifier.verify_dsse(bundle, policy)
    except Exception as error:
        # In a message, an address with an @ would be masked like one with a password.
        reason = re.sub(r"https?://(?=\S*@)", "", first_line(str(error)))
        raise ValueError(f"the bundle is not valid: {reason}") from error
    if kind != PAYLOAD_TYPE:
        raise ValueError(f"got payloadType {kind!r:.100}, expected {PAYLOAD_TYPE}")
    return payload


def _service_error(message: str, error: Exception) -> InfrastructureError:
    # The client of the certificate authority leaves the reason to its cause.
    cause = first_line(str(error)) or first_line(str(error.__cause__ or "")) or type(error).__name__
    return InfrastructureError(f"attest: Sigstore: {message}: {cause}", remedy=SERVICE_REMEDY)
