"""Verifies signed statements against the files of their run."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TypeVar

from ci.errors import InfrastructureError, UsageError
from ci.model.decision import Decision, GateVerdict
from ci.model.release import ReleasePolicy, Waiver, policy_digest
from ci.model.results import RunResult
from ci.proof.evidence import open_inside, sha256_inside
from ci.proof.statements import (
    BuildProvenance,
    DigestSet,
    Predicate,
    ResourceDescriptor,
    SignedFiles,
    StatedResult,
    StatedTests,
    Statement,
    VerificationSummary,
    envelope_digest,
    parse_statement,
)
from ci.store.folder import ATTESTATIONS, RESULTS_FILE, read_results
from ci.util.text import join_names, os_reason, shorten

LARGEST_ENVELOPES = 1 << 26  # bytes of a file; 100,000 tests with long names have 20 million
MOST_ENVELOPES = 10_000  # of a folder or bundle: seven platforms with 100 wheels each have 1,400
LONGEST_VALUE = 100  # characters of a key of ci.yaml
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO)  # proves nothing about a file

KnownPredicate = TypeVar("KnownPredicate", bound=Predicate)


@dataclass(frozen=True, kw_only=True)
class SignatureCheck:
    """What signed the files that are verified."""

    files: SignedFiles
    open_envelope: Callable[[str], bytes]
    """Returns the payload of an envelope; raises ``ValueError`` without a valid signature."""


@dataclass(kw_only=True)
class StatementSet:
    """The signed statements of a folder or file, and what stands against them."""

    is_whole: bool
    """Whether these have to be all of a run: a folder or a bundle, not a single statement."""
    statements: list[Statement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    run: RunResult | None = None
    """The run that they are about, once its files were compared."""
    digests: set[str] = field(default_factory=set)
    """Of the envelopes. A folder has each one in a file and in the bundle."""

    def add(self, where: Path, text: str, check: SignatureCheck) -> None:
        """Open an envelope, unless it is a copy of another one."""
        digest = envelope_digest(text)
        if digest in self.digests:
            return
        self.digests.add(digest)
        try:
            self.statements.append(parse_statement(check.open_envelope(text)))
        except ValueError as error:
            self.faults.append(f"{where}: {error}")

    def of(self, kind: type[KnownPredicate]) -> Iterator[tuple[Statement, KnownPredicate]]:
        """Yield the statements with a kind of predicate."""
        for it in self.statements:
            if isinstance(it.predicate, kind):
                yield it, it.predicate


def find_run_folder(path: Path) -> Path:
    """The folder of the run that statements are about: that of ``path``, or the one above it.

    Raises ``UsageError`` if there is none.
    """
    start = path if path.is_dir() else path.parent
    for folder in (start, start.resolve().parent):
        if (folder / RESULTS_FILE).is_file():
            return folder
    message = f"attest --verify: {path}: got no {RESULTS_FILE} there or in the folder above"
    raise UsageError(message, remedy="Name the run, too: attest RUN --verify FOLDER --key KEY.pub")


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What a configuration demands of a release."""

    path: Path
    policy: ReleasePolicy
    waivers: Sequence[Waiver]

    def differences(self, decision: Decision) -> Iterator[str]:
        """Yield what a decision demanded otherwise."""
        if decision.policy_sha256 == policy_digest(self.policy, self.waivers):
            return
        if decision.policy is None:
            yield f"the decision follows other rules than {self.path}, and does not record them"
            return
        own, other = self.policy.model_dump(mode="json"), decision.policy.model_dump(mode="json")
        for key in own:
            if own[key] != other[key]:
                demanded = f"the decision demanded {_shown(other[key])}"
                yield f"{demanded} for release.{key}, expected {_shown(own[key])} as in {self.path}"
        for it in decision.waivers:
            if it not in self.waivers:
                yield f"the decision had a waiver of rule {it}, which {self.path} does not name"
        for it in self.waivers:
            if it not in decision.waivers:
                yield f"the decision had no waiver of rule {it}, which {self.path} names"


def _shown(value: object) -> str:
    return shorten(json.dumps(value), LONGEST_VALUE)


def verify(
    path: Path,
    folder: Path,
    check: SignatureCheck,
    today: date,
    demands: Demands | None = None,
) -> StatementSet:
    """Verify the statements in a file, or all of a folder, against the run in ``folder``.

    With ``demands``, there must be a decision that demanded just these.
    Raises ``UsageError`` if there are none, ``InfrastructureError`` if something cannot be read.
    """
    found = _read_envelopes(path, check)
    if not found.faults:
        digests = _FileDigests(folder)
        faults = [fault for it in found.statements for fault in _file_faults(it, digests)]
        found.faults += dict.fromkeys(faults)
    if not found.faults:
        found.run = read_results(folder / RESULTS_FILE)  # as signed
        found.faults += [*_run_faults(found.run, found), *_decision_faults(found.run, found, today)]
        found.faults += _demand_faults(found, demands) if demands else ()
    return found


def _read_envelopes(path: Path, check: SignatureCheck) -> StatementSet:
    if path.is_dir():
        folder = path / ATTESTATIONS if (path / RESULTS_FILE).exists() else path
        present = folder.iterdir() if folder.is_dir() else ()
        files = sorted(it for it in present if check.files.has(it.name))
    else:
        files = [path] if path.exists() else []
    if not files:
        asked = "--key KEY" if check.files is SignedFiles.KEY else "--sigstore"
        remedy = f"Name a folder or file that `attest RUN {asked}` has written."
        raise UsageError(f"attest --verify: {path}: got no attestations", remedy=remedy)
    bundle_end = check.files.bundle_end
    found = StatementSet(is_whole=path.is_dir() or path.name.endswith(bundle_end))
    for number, (file, text) in enumerate(_envelopes_of(files, bundle_end)):
        if number == MOST_ENVELOPES:
            found.faults.append(f"{path}: got more than {MOST_ENVELOPES:,} attestations")
            break
        found.add(file, text, check)
    return found


def _envelopes_of(files: Sequence[Path], bundle_end: str) -> Iterator[tuple[Path, str]]:
    """The files with the text of each envelope: one, or one in each line of a bundle."""
    for path in files:
        try:
            with open_inside(path.parent, path.name) as file:
                content = file.read(LARGEST_ENVELOPES + 1)
        except OSError as error:
            raise InfrastructureError(f"attest --verify: {os_reason(error)}") from error
        except ValueError as error:
            raise InfrastructureError(f"attest --verify: {path}: {error}") from error
        if len(content) > LARGEST_ENVELOPES:
            size = f"got more than {LARGEST_ENVELOPES:,} bytes"
            raise InfrastructureError(f"attest --verify: {path}: {size}")
        text = content.decode(errors="surrogateescape")
        # Where the last end of a line is missing, an additional one makes it another text.
        body = text.removesuffix("\n") if text.endswith("\n") else f"{text}\n"
        for line in body.split("\n") if path.name.endswith(bundle_end) else [body]:
            yield path, line


class _FileDigests:
    """SHA-256 of the files of a run, each read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, str] = {}

    def fault(self, name: str, expected: str) -> str | None:
        """Why a file is not the one that was signed."""
        try:
            if name not in self._known:
                self._known[name] = sha256_inside(self._folder, name)
        except FileNotFoundError:
            return f"{name}: the file is missing"
        except OSError as error:
            if error.errno in UNREADABLE:
                message = f"attest --verify: {self._folder / name}: {error.strerror}"
                raise InfrastructureError(message) from error
            return f"{name}: got no regular file: {error.strerror}"
        except ValueError as error:
            return f"{name}: {error}"
        found = self._known[name]
        return None if found == expected else f"{name}: got SHA-256 {found}, expected {expected}"


def _file_faults(statement: Statement, digests: _FileDigests) -> Iterator[str]:
    named = [(it.name or "", it.digest.sha256) for it in statement.files if it.digest]
    for name, sha256 in named:
        if fault := digests.fault(name, sha256 or ""):
            yield fault
    if RESULTS_FILE not in dict(named):
        yield f"got a statement without {RESULTS_FILE}, expected one about a run"
    for it in statement.subject:
        if it not in statement.files and _commit(it) is None:
            yield f"subject {it.name!r:.100}: got no digest that can be checked"


def _commit(it: ResourceDescriptor) -> str | None:
    return it.digest.git_commit if it.digest else None


def _run_faults(run: RunResult, found: StatementSet) -> Iterator[str]:
    """What the statements lack, by the results that all of them name."""
    commits = {_commit(subject) for it in found.statements for subject in it.subject}
    if commits - {None, run.commit}:
        yield f"source: got commit {run.commit} in {RESULTS_FILE}, expected the signed one"
    if not found.is_whole:
        return
    stated = {it.platform for it, _ in found.of(StatedTests)}
    built = {file for it, _ in found.of(BuildProvenance) for file in map(_key, it.subject)}
    for result in run.platforms:
        if result.platform not in stated:
            yield f"{result.platform}: got no test result, expected one of each platform of the run"
        for it in result.distributions:
            if it.path and not it.given and (it.path, it.sha256) not in built:
                yield f"{it.path}: got no provenance"
    summaries = [summary for _, summary in found.of(VerificationSummary)]
    if not summaries and any(it.is_decided for it in found.statements):
        yield "got no verification summary, expected the one that was signed with the test results"
    for summary in summaries:
        for used in summary.input_attestations:
            if not used.digest or used.digest.sha256 not in found.digests:
                yield f"{used.uri}: got no such attestation, expected what the decision names"


def _key(it: ResourceDescriptor) -> tuple[str | None, str | None]:
    return it.name, it.digest.sha256 if it.digest else None


def _decision_faults(run: RunResult, found: StatementSet, today: date) -> Iterator[str]:
    """Why a release with these statements must not be published."""
    decisions = [summary for _, summary in found.of(VerificationSummary)]
    for summary in decisions:
        decision = summary.decision
        is_go = decision.verdict is GateVerdict.GO
        if is_go != (summary.verification_result is StatedResult.PASSED):
            yield "the verification summary differs from its decision"
        elif summary.policy.digest != DigestSet(sha256=decision.policy_sha256):
            yield "the verification summary names another policy than its decision"
        elif not is_go:
            yield f"the decision is no-go: {join_names([it.rule for it in decision.failed])}"
        for rule in decision.rules:
            if rule.waiver and rule.waiver.until < today:
                of = f" of {rule.platform}" if rule.platform else ""
                yield f"the waiver of rule {rule.rule}{of} ended on {rule.waiver.until}"
    runs = [it for summary in decisions for it in summary.decision.runs]
    judged = {platform for it in runs if it.run_id == run.run_id for platform in it.platforms}
    for it, tests in found.of(StatedTests):
        if tests.result is StatedResult.FAILED and it.platform not in judged:
            yield f"{it.platform}: the tests FAILED, and no decision waives that"


def _demand_faults(found: StatementSet, demands: Demands) -> Iterator[str]:
    decisions = [summary.decision for _, summary in found.of(VerificationSummary)]
    if not decisions:
        yield f"got no decision of a gate, expected one by the rules of {demands.path}"
    for decision in decisions:
        yield from demands.differences(decision)
