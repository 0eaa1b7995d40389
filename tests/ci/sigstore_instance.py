"""An instance of Sigstore: a certificate authority and a log of signatures, on a loopback address.

It answers the package ``sigstore`` as Fulcio and as Rekor (API version 1) do, with keys of its own.
Unlike them it checks neither the signature of a token nor the one that it logs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, ObjectIdentifier

LIFETIME = timedelta(minutes=10)
# https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md
OIDC_ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
VALID = {"validFor": {"start": "2020-01-01T00:00:00Z"}}


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Key:
    """A private key, with the identifier that logs have."""

    def __init__(self) -> None:
        self.private = ec.generate_private_key(ec.SECP256R1())
        self.public = self.private.public_key().public_bytes(
            Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        )
        self.identifier = hashlib.sha256(self.public).digest()

    def sign(self, data: bytes) -> bytes:
        signature: bytes = self.private.sign(data, ec.ECDSA(SHA256()))
        return signature


def _key_usage(**used: bool) -> x509.KeyUsage:
    signing = ("digital_signature", "content_commitment", "key_cert_sign", "crl_sign")
    exchange = ("key_encipherment", "data_encipherment", "key_agreement")
    limits = ("encipher_only", "decipher_only")
    return x509.KeyUsage(**{name: used.get(name, False) for name in (*signing, *exchange, *limits)})


class Authority:
    """Issues certificates of ten minutes, each with a promise of a log that it is public."""

    def __init__(self) -> None:
        self.key = Key()
        self.log_key = Key()
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        public = self.key.private.public_key()
        self.certificate = (
            self._builder(public, self.name, timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(key_cert_sign=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.key.private, SHA256())
        )

    def _builder(
        self, key: CertificatePublicKeyTypes, subject: x509.Name, lifetime: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(seconds=1),
            not_valid_after=now + lifetime,
        )

    def issue(self, key: CertificatePublicKeyTypes, identity: str, issuer: str) -> x509.Certificate:
        """Return the certificate of a public key for a URI."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
        name = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)])
        known = x509.UnrecognizedExtension(OIDC_ISSUER, issuer.encode())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.private.public_key())
        builder = (
            self._builder(key, x509.Name([]), LIFETIME)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(name, critical=True)
            .add_extension(signer, critical=False)
            .add_extension(known, critical=False)
        )
        promise = self._promise(builder.sign(self.key.private, SHA256()).tbs_certificate_bytes)
        return builder.add_extension(promise, critical=False).sign(self.key.private, SHA256())

    def _promise(self, certificate: bytes) -> x509.UnrecognizedExtension:
        """Return the signed certificate timestamp of a precertificate: RFC 6962, 3.2 and 3.3."""
        time_ms = int(time.time() * 1000)
        entry = self.key.identifier + len(certificate).to_bytes(3, "big") + certificate
        signed = struct.pack(">BBQH", 0, 0, time_ms, 1) + entry + bytes(2)  # no extensions
        signature = self.log_key.sign(signed)
        head = struct.pack(">B32sQH", 0, self.log_key.identifier, time_ms, 0)
        timestamp = head + struct.pack(">BBH", 4, 3, len(signature)) + signature  # SHA-256, ECDSA
        timestamps = struct.pack(">HH", len(timestamp) + 2, len(timestamp)) + timestamp
        oid = ExtensionOID.PRECERT_SIGNED_CERTIFICATE_TIMESTAMPS
        return x509.UnrecognizedExtension(oid, asn1.encode_der(timestamps))


def _root(leaves: Sequence[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    left, right = _halves(leaves)
    return hashlib.sha256(b"\1" + _root(left) + _root(right)).digest()


def _path_of_last(leaves: Sequence[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    left, right = _halves(leaves)
    return [*_path_of_last(right), _root(left)]


def _halves(leaves: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    middle = 1 << (len(leaves) - 1).bit_length() - 1  # the largest power of two below the length
    return leaves[:middle], leaves[middle:]


class Log:
    """A Merkle tree of signatures (RFC 6962, 2.1), which only grows."""

    def __init__(self) -> None:
        self.key = Key()
        self.ahead_s = 0  # of its clock
        self._leaves: list[bytes] = []

    def append(self, envelope: dict[str, Any], certificate: str) -> dict[str, Any]:
        """Return the entry of an envelope that the key of a certificate signed."""
        payload = hashlib.sha256(base64.b64decode(envelope["payload"])).hexdigest()
        whole = hashlib.sha256(json.dumps(envelope).encode()).hexdigest()
        signatures = [
            {"signature": it["sig"], "verifier": certificate} for it in envelope["signatures"]
        ]
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": whole},
            "payloadHash": {"algorithm": "sha256", "value": payload},
            "signatures": signatures,
        }
        body = _canonical({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
        self._leaves.append(body)
        entry = {
            "body": base64_text(body),
            "integratedTime": int(time.time()) + self.ahead_s,
            "logID": self.key.identifier.hex(),
            "logIndex": len(self._leaves) - 1,
        }
        promise = base64_text(self.key.sign(_canonical(entry)))
        proof = {"signedEntryTimestamp": promise, "inclusionProof": self._prove_last()}
        return {**entry, "verification": proof}

    def _prove_last(self) -> dict[str, Any]:
        size, root = len(self._leaves), _root(self._leaves)
        head = f"log.test\n{size}\n{base64_text(root)}\n"
        signature = base64_text(self.key.identifier[:4] + self.key.sign(head.encode()))
        return {
            "logIndex": size - 1,
            "treeSize": size,
            "rootHash": root.hex(),
            "hashes": [it.hex() for it in _path_of_last(self._leaves)],
            "checkpoint": f"{head}\n\u2014 log.test {signature}\n",
        }


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Instance:
    """Both services, as their client sees them."""

    def __init__(self, address: str, issuer: str) -> None:
        self.address = address
        self.issuer = issuer
        self.authority = Authority()
        self.log = Log()

    def answer(self, path: str, token: str, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request; ``None``: it is refused."""
        if path == "/api/v1/log/entries":
            proposed = request["spec"]["proposedContent"]
            entry = self.log.append(json.loads(proposed["envelope"]), proposed["verifiers"][0])
            return {hashlib.sha256(entry["body"].encode()).hexdigest(): entry}
        claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
        if path != "/api/v2/signingCert" or claims["iss"] != self.issuer:
            return None
        wanted = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        issued = self.authority.issue(wanted.public_key(), claims["sub"], claims["iss"])
        chain = (issued, self.authority.certificate)
        texts = [it.public_bytes(Encoding.PEM).decode() for it in chain]
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": texts}}}

    def trust(self) -> dict[str, Any]:
        """Return its ``ClientTrustConfig``."""
        kind = "application/vnd.dev.sigstore."
        service = {"url": self.address, "majorApiVersion": 1, "operator": "test", **VALID}
        root = base64_text(self.authority.certificate.public_bytes(Encoding.DER))
        authority = {"uri": self.address, "subject": {"organization": "", "commonName": ""}}
        chain = {"certChain": {"certificates": [{"rawBytes": root}]}}
        return {
            "mediaType": f"{kind}clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": f"{kind}trustedroot+json;version=0.1",
                "tlogs": [self._trusted_log(self.log.key)],
                "ctlogs": [self._trusted_log(self.authority.log_key)],
                "certificateAuthorities": [{**authority, **chain, **VALID}],
            },
            "signingConfig": {
                "mediaType": f"{kind}signingconfig.v0.2+json",
                "caUrls": [service],
                "rekorTlogUrls": [service],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def _trusted_log(self, key: Key) -> dict[str, Any]:
        details = {"rawBytes": base64_text(key.public), "keyDetails": "PKIX_ECDSA_P256_SHA_256"}
        return {
            "baseUrl": self.address,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {**details, **VALID},
            "logId": {"keyId": base64_text(key.identifier)},
        }


@contextmanager
def running_instance(issuer: str) -> Iterator[Instance]:
    """Run an instance that knows the identities of one issuer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = instance.answer(self.path, self.headers.get("Authorization", ""), request)
            content = json.dumps(answer).encode()
            self.send_response(201 if answer else 400)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        instance = Instance(f"http://127.0.0.1:{server.server_port}", issuer)
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield instance
        finally:
            server.shutdown()
