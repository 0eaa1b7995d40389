"""``python -m ci attest``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ci.commands.gating import Gatekeeper, without_rules
from ci.commands.options import add_format, add_results
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.proof.statements import (
    PROGRAM_URI,
    BuildProvenance,
    SignedFiles,
    StatedTests,
    VerificationSummary,
)
from ci.proof.verification import (
    Demands,
    SignatureCheck,
    StatementSet,
    find_run_folder,
    verify,
)
from ci.proof.writing import Signing, read_named_decision, write_statements
from ci.store.folder import ATTESTATIONS, RESULTS_FILE, lock_run
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.process import TOKEN_VARIABLE
from ci.util.terminal import show, show_error
from ci.util.text import counted, near_match

STATEMENTS = "statements"  # folder of unsigned ones
MOST_FAULTS = 20  # that are shown
KEY_PACKAGE = "securesystemslib[crypto]~=1.6"  # of the dependency group attest
SIGSTORE_PACKAGE = "sigstore~=4.5"  # of the dependency group sigstore


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write in-toto statements about a run: the test result of each platform, the SLSA"
        " provenance of each wheel and source distribution that it built, and with --decision the"
        " verdict of the gate. With --key or --sigstore they are signed: attestations, one file"
        " each, and a bundle. With --verify, check attestations and every file that they name"
        " instead: exit code 1 if one was changed or is missing, or if what they attest is no pass."
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="run id, or latest (default: the latest run; with --verify, the run beside the"
        " attestations)",
    )
    parser.add_argument(
        "--key",
        type=Path,
        metavar="FILE",
        help="private ed25519 key that signs, with --verify the public one: an OpenSSH or a PEM"
        " file. $INFINI_CI_KEY_PASSPHRASE has the passphrase of a private key; without it, a"
        " terminal is asked",
    )
    _add_sigstore(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder to write to, in which earlier statements are replaced (default:"
        f" `{ATTESTATIONS}` in the folder of the run; `{STATEMENTS}` for unsigned ones)",
    )
    parser.add_argument(
        "--decision",
        type=Path,
        metavar="FILE",
        help="decision about the run, which `gate` has written: adds a verification summary",
    )
    parser.add_argument(
        "--identity",
        type=_uri,
        metavar="URI",
        default=PROGRAM_URI,
        help=f"URI that names your site as the builder and the verifier (default: {PROGRAM_URI})",
    )
    parser.add_argument(
        "--verify",
        type=Path,
        metavar="FOLDER",
        help="folder of a run or of its attestations, a bundle or one of the files",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="with --verify, the configuration whose section `release:` and waivers the decision"
        " must have followed (default: any rules, which the decision records)",
    )
    add_format(parser, "table", "json")
    add_results(parser)


def _add_sigstore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sigstore",
        action="store_true",
        help="sign with Sigstore in place of a key, as the identity of this CI job, or of the token"
        f" in ${TOKEN_VARIABLE}. Sigstore's log makes the identity public",
    )
    parser.add_argument(
        "--signer",
        metavar="IDENTITY",
        help="with --verify, in place of --key: who must have signed with Sigstore, such as an"
        " email address or the URL of a workflow",
    )
    parser.add_argument(
        "--issuer",
        metavar="URL",
        help="with --signer, the OpenID Connect provider that must have issued the signer's token",
    )
    parser.add_argument(
        "--trust-config",
        type=Path,
        metavar="FILE",
        help="services and root certificates of your site's own Sigstore, as a ClientTrustConfig in"
        " JSON (default: the public instance)",
    )


def _uri(text: str) -> str:
    """An argparse type for a URI."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]{1,500}", text):
        expected = "expected a URI such as https://ci.example.com/release"
        raise argparse.ArgumentTypeError(f"got '{text}', {expected}")
    return text


def execute(options: argparse.Namespace) -> int:
    """Write the statements about a run, or verify attestations."""
    if options.config and not options.verify:
        message = "--config: got no --verify: a decision is made by `gate`"
        raise UsageError(message, remedy="Leave out --config, or add --verify.")
    _check_combination(options)
    return _verify(options) if options.verify else _attest(options)


def _check_combination(options: argparse.Namespace) -> None:
    """Raise ``UsageError`` unless one thing signs, or one thing verifies."""
    is_sigstore = options.sigstore or options.signer or options.issuer
    if options.key and is_sigstore:
        message = "attest: got --key and Sigstore's options, expected one kind of signature"
        raise UsageError(message, remedy="Run it once for each: the files have different names.")
    if options.trust_config and not is_sigstore:
        message = "--trust-config: got neither --sigstore nor --signer, expected one of them"
        raise UsageError(message, remedy="Add one, or leave out --trust-config.")
    if not options.verify and (options.signer or options.issuer):
        message = "attest: got --signer or --issuer without --verify: the token names who signs"
        raise UsageError(message, remedy="To sign, use --sigstore alone.")
    if options.verify and is_sigstore and not (options.signer and options.issuer):
        message = "attest --verify: got no --signer or no --issuer, expected both: who must have"
        remedy = "Add them, such as: --signer me@example.com --issuer https://accounts.google.com"
        raise UsageError(f"{message} signed, and who issued the token", remedy=remedy)


def _attest(options: argparse.Namespace) -> int:
    folder = _run_folder(options.results, options.run or LATEST)
    signing, key_id = None, None
    if options.key:
        with _needs_packages(KEY_PACKAGE):
            from ci.proof import keys
        key_signer = keys.load_signer(options.key, os.environ)
        sign, key_id = partial(keys.sign, signer=key_signer), key_signer.public_key.keyid
        signing = Signing(sign=sign, files=SignedFiles.KEY)
    elif options.sigstore:
        with _needs_packages(SIGSTORE_PACKAGE):
            from ci.proof import keyless
        signer = keyless.request_signer(keyless.read_trust(options.trust_config), os.environ)
        signing = Signing(sign=partial(keyless.sign, signer=signer), files=SignedFiles.SIGSTORE)
    decision = read_named_decision(options.decision) if options.decision else None
    output = options.output or folder / (ATTESTATIONS if signing else STATEMENTS)
    with lock_run(folder):
        written = write_statements(
            folder,
            output,
            identity=options.identity,
            decision=decision,
            signing=signing,
        )
    if options.format == "json":
        files = [str(path) for path in written]
        show(json.dumps({"run_id": folder.name, "key": key_id, "files": files}, indent=2))
        return ExitCode.PASSED
    for path in written:
        show(str(path))
    if signing:
        count = counted(len(written) - 1, "attestation")
        means = f"the key {key_id}" if key_id else "Sigstore"
        bundle = signing.files.bundle_file
        show(f"{count} of run {folder.name}, signed with {means}; {bundle} has all")
    else:
        count = counted(len(written), "unsigned statement")
        show(f"{count} of run {folder.name}: anyone can change them, so they prove nothing.")
        show(f"Sign them: {command('attest', folder.name, '--key', 'KEY')}")
    return ExitCode.PASSED


def _run_folder(results: Path, run: str) -> Path:
    folder = results / run
    if Path(run).name == run and (folder / RESULTS_FILE).is_file():
        return folder.resolve() if run == LATEST else folder
    known = sorted(it.parent.name for it in results.glob(f"*/{RESULTS_FILE}"))
    message = f"attest: {results}: got no run '{run}' with a {RESULTS_FILE}{near_match(run, known)}"
    raise UsageError(message, remedy=f"Name the folder of a run in {results}.")


@contextmanager
def _needs_packages(requirement: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"attest: the package {(error.name or '').partition('.')[0]} is not installed"
        remedy = f"Install it: pip install {shlex.quote(requirement)}"
        raise InfrastructureError(message, remedy=remedy) from None


@dataclass(frozen=True, kw_only=True)
class _Signatory:
    """Who must have signed: in a message, in JSON, and how it is checked."""

    text: str
    document: Mapping[str, str]
    check: SignatureCheck


def _signatory(options: argparse.Namespace) -> _Signatory:
    if options.signer:
        with _needs_packages(SIGSTORE_PACKAGE):
            from ci.proof import keyless
        trust = keyless.read_trust(options.trust_config)
        open_bundle = keyless.bundle_opener(trust, options.signer, options.issuer)
        return _Signatory(
            text=f"as {options.signer} of {options.issuer}",
            document={"signer": options.signer, "issuer": options.issuer},
            check=SignatureCheck(files=SignedFiles.SIGSTORE, open_envelope=open_bundle),
        )
    if options.key is None:
        message = "attest --verify: got no --key, expected the public key of those who sign"
        remedy = "Add it: --key KEY.pub. For Sigstore's signatures: --signer IDENTITY --issuer URL"
        raise UsageError(message, remedy=remedy)
    with _needs_packages(KEY_PACKAGE):
        from ci.proof import keys
    key = keys.load_public_key(options.key)
    open_envelope = partial(keys.open_envelope, key=key)
    return _Signatory(
        text=f"with the key {key.keyid}",
        document={"key": key.keyid},
        check=SignatureCheck(files=SignedFiles.KEY, open_envelope=open_envelope),
    )


def _verify(options: argparse.Namespace) -> int:
    if options.output or options.decision:
        raise UsageError("attest --verify: cannot be combined with --output or --decision")
    signatory = _signatory(options)
    if options.run:
        folder = _run_folder(options.results, options.run)
    else:
        folder = find_run_folder(options.verify)
    today = datetime.now(UTC).date()
    demands = _demands(options.config) if options.config else None
    found = verify(options.verify, folder, signatory.check, today, demands)
    code = ExitCode.PRODUCT_FAILURE if found.faults else ExitCode.PASSED
    if options.format == "json":
        show(json.dumps(_document(found, signatory.document), indent=2))
        return code
    for fault in found.faults[:MOST_FAULTS]:
        show_error(f"attest --verify: {fault}")
    if found.faults:
        more = len(found.faults) - MOST_FAULTS
        others = f", with {counted(more, 'more error')}" if more > 0 else ""
        show_error(f"attest --verify: {options.verify}: not verified{others}")
        return code
    _show_verified(found)
    count = counted(len(found.statements), "attestation")
    run = found.run.run_id if found.run else ""
    show(f"{count} of run {run} verified, signed {signatory.text}")
    return code


def _demands(path: Path) -> Demands:
    keeper = Gatekeeper.of(path, None)
    if keeper is None:
        raise without_rules(path)
    return Demands(path=path, policy=keeper.policy, waivers=keeper.waivers)


def _document(found: StatementSet, signatory: Mapping[str, str]) -> dict[str, object]:
    """The outcome of a verification; without one that holds, no statement is quoted."""
    tests = {} if found.faults else {of.platform: it.result for of, it in found.of(StatedTests)}
    summaries = [] if found.faults else [it for _, it in found.of(VerificationSummary)]
    return {
        "run_id": found.run.run_id if found.run and not found.faults else None,
        **signatory,
        "verified": not found.faults,
        "errors": found.faults,
        "platforms": tests,
        "decisions": [it.decision.verdict for it in summaries],
    }


def _show_verified(found: StatementSet) -> None:
    for statement, tests in found.of(StatedTests):
        counts = (len(tests.passed_tests), len(tests.warned_tests), len(tests.failed_tests))
        words = "{:,} passed, {:,} warned, {:,} failed".format(*counts)
        show(f"{statement.platform}: {tests.result}, {words}")
    for statement, build in found.of(BuildProvenance):
        names = ", ".join(it.name or "" for it in statement.subject)
        show(f"{names}: built by {build.run_details.builder.id}")
    summaries = [it for _, it in found.of(VerificationSummary)]
    for summary in summaries:
        show(f"{summary.resource_uri}: {summary.decision.verdict.shown}")
    if not summaries:
        show("no decision of a gate is attested")
