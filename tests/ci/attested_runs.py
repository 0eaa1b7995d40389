"""Runs with all files that attestations name, keys, and decisions about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from ci.model.decision import DecidedRun, Decision, GateVerdict, OutcomeKind, RuleOutcome
from ci.model.release import (
    OF_WHOLE_RELEASE,
    ReleasePolicy,
    ReleaseRule,
    Waiver,
    policy_digest,
)
from ci.model.results import Distribution, RunResult
from ci.model.verdicts import Product
from tests.ci.made_results import made_verdict
from tests.ci.published import PUBLISHED, platform_result
from tests.ci.report_log import FINISH, phases, report

RUN_ID = "20260101T120000Z-0123abcd-00ff"
COMMIT = "0123abcd" * 5
WHEEL = "infini_ops-0.1.0-py3-none-any.whl"
SDIST = "infini_ops-0.1.0.tar.gz"
GIVEN = "vendor-1.0-py3-none-any.whl"
TODAY = date(2026, 3, 1)
SEED = bytes(range(32))  # of the key of the golden file


def write_key(path: Path, kind: str = "ssh", *, seed: bytes = SEED, passphrase: str = "") -> Path:
    """Write a private key of a kind, ``ssh`` or ``pem``, and its public key with ``.pub`` added."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    form = PrivateFormat.OpenSSH if kind == "ssh" else PrivateFormat.PKCS8
    how: KeySerializationEncryption = NoEncryption()
    if passphrase and kind == "ssh":  # with the usual number of rounds it takes 0.5 s
        how = form.encryption_builder().kdf_rounds(1).build(passphrase.encode())
    elif passphrase:
        how = BestAvailableEncryption(passphrase.encode())
    path.write_bytes(key.private_bytes(Encoding.PEM, form, how))
    path.chmod(0o600)
    public = (
        (Encoding.OpenSSH, PublicFormat.OpenSSH)
        if kind == "ssh"
        else (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    path.with_name(f"{path.name}.pub").write_bytes(key.public_key().public_bytes(*public))
    return path


def _distribution(folder: Path, platform: str, name: str, **more: Any) -> Distribution:
    path = f"{platform}/dist/{name}"
    content = f"{name} of {platform}".encode()
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(content)
    return Distribution(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        path=path,
        **more,
    )


def write_run(
    results: Path, *, ascend: Product = Product.PASSED, log: Sequence[str] | None = None
) -> Path:
    """Write a run of two platforms: NVIDIA built a wheel and an sdist, Ascend got a wheel."""
    folder = results / RUN_ID
    built = (
        _distribution(folder, "nvidia", WHEEL, installed=True),
        _distribution(folder, "nvidia", SDIST),
    )
    got = (_distribution(folder, "ascend", GIVEN, given=True),)
    verdict = made_verdict(ascend, "pytest ended")
    (_, *nvidia), (_, *last) = PUBLISHED[0], PUBLISHED[-1]
    rows = (
        platform_result("NVIDIA", tuple(nvidia), distributions=built),
        platform_result("Ascend", tuple(last), distributions=got, verdict=verdict),
    )
    for row in rows:
        _write_records(folder / row.platform, log or [*phases("t.py::test_a"), FINISH])
    run = RunResult(
        run_id=RUN_ID,
        project="infini-ops",
        commit=COMMIT,
        dirty=False,
        started_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
        finished_at=datetime(2026, 1, 1, 13, 30, tzinfo=UTC),
        engine="docker",
        platforms=rows,
    )
    (folder / "results.json").write_text(run.to_json(), encoding="utf-8")
    (folder / "contracts").mkdir()
    (folder / "contracts" / "nvidia.yaml").write_text("platform: nvidia\n")
    return folder


def _write_records(folder: Path, log: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.jsonl").write_text("".join(f"{line}\n" for line in log))
    (folder / "events.jsonl").write_text("{}\n")
    (folder / "junit.xml").write_text("<testsuites/>\n")
    (folder / "environment.json").write_text(json.dumps({"packages": {}}))


MIXED = [
    *phases("t.py::test_passes"),
    *phases("t.py::test_fails", "failed"),
    report("t.py::test_skipped", "setup", "skipped", longrepr=["t.py", 1, "Skipped: no"]),
    report("t.py::test_expected", "setup"),
    report("t.py::test_expected", "call", "skipped", wasxfail="known"),
    report("t.py::test_expected", "teardown"),
    FINISH,
]


def decision_about(
    folder: Path,
    *,
    until: date | None = None,
    is_go: bool = True,
    platforms: tuple[str, ...] = ("nvidia", "ascend"),
) -> Decision:
    """A decision about platforms of a run; ``until``: the end of a waiver for skips of Ascend."""
    content = (folder / "results.json").read_bytes()
    run = DecidedRun(run_id=RUN_ID, sha256=hashlib.sha256(content).hexdigest(), platforms=platforms)
    known: dict[str, Any] = {"rule": ReleaseRule.SKIPS, "platform": "ascend", "reason": "known"}
    waivers = (Waiver(**known, owner="release team", until=until),) if until else ()
    # Without patterns of reasons, the rule about skips is not checked.
    policy = ReleasePolicy(required=platforms, skips=("no device*",) if waivers else None)
    waived = {it.place: it.applied for it in waivers}
    broken = None if is_go else (ReleaseRule.COMMIT, platforms[0])

    def judge(rule: ReleaseRule, platform: str | None) -> RuleOutcome:
        kind = OutcomeKind.FAILED if (rule, platform) == broken else OutcomeKind.PASSED
        waiver = waived.get((rule, platform))
        return RuleOutcome(
            rule=rule,
            platform=platform,
            outcome=OutcomeKind.WAIVED if waiver else kind,
            evidence="as found",
            waiver=waiver,
        )

    rules = [
        judge(rule, platform)
        for platform in (None, *platforms)
        for rule in policy.rules
        if (rule in OF_WHOLE_RELEASE) == (platform is None)
    ]
    return Decision(
        project="infini-ops",
        tag="v0.1.0",
        commit=COMMIT,
        decided_at=datetime(2026, 1, 2, 8, tzinfo=UTC),
        verdict=GateVerdict.GO if is_go else GateVerdict.NO_GO,
        exit_code=0 if is_go else 1,
        rules=tuple(rules),
        runs=(run,),
        policy_sha256=policy_digest(policy, waivers),
        policy=policy,
        waivers=waivers,
    )
