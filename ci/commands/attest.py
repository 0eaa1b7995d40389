"""``python -m ci attest``."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ci.commands.gating import Gatekeeper, without_rules
from ci.commands.options import add_format, add_results
from ci.errors import ExitCode, InfrastructureError, UsageError
from ci.proof.statements import (
    PROGRAM_URI,
    BuildProvenance,
    StatedTests,
    VerificationSummary,
)
from ci.proof.verification import Demands, StatementSet, find_run_folder, verify
from ci.proof.writing import BUNDLE_FILE, read_named_decision, write_statements
from ci.store.folder import ATTESTATIONS, RESULTS_FILE, lock_run
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.terminal import show, show_error
from ci.util.text import counted, near_match

STATEMENTS = "statements"  # folder of unsigned ones
MOST_FAULTS = 20  # that are shown
PACKAGE_REMEDY = (
    "Install it: pip install 'securesystemslib[crypto]~=1.6' (the dependency group `attest` of"
    " pyproject.toml)."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write in-toto statements about a run: the test result of each platform, the SLSA"
        " provenance of each wheel and source distribution that it built, and with --decision the"
        " verdict of the gate. With --key they are signed: attestations, one file each, and a"
        " bundle. With --verify, check attestations and every file that they name instead: exit"
        " code 1 if one was changed or is missing, or if what they attest is no pass."
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
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="folder to write to, in which earlier statements are replaced (default:"
        f" `{ATTESTATIONS}` in the folder of the run; `{STATEMENTS}` without --key)",
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
    return _verify(options) if options.verify else _attest(options)


def _attest(options: argparse.Namespace) -> int:
    folder = _run_folder(options.results, options.run or LATEST)
    sign, key_id = None, None
    if options.key:
        with _needs_packages():
            from ci.proof import keys
        signer = keys.load_signer(options.key, os.environ)
        sign, key_id = partial(keys.sign, signer=signer), signer.public_key.keyid
    decision = read_named_decision(options.decision) if options.decision else None
    output = options.output or folder / (ATTESTATIONS if sign else STATEMENTS)
    with lock_run(folder):
        written = write_statements(
            folder,
            output,
            identity=options.identity,
            decision=decision,
            sign=sign,
        )
    if options.format == "json":
        files = [str(path) for path in written]
        show(json.dumps({"run_id": folder.name, "key": key_id, "files": files}, indent=2))
        return ExitCode.PASSED
    for path in written:
        show(str(path))
    if sign:
        count = counted(len(written) - 1, "attestation")
        show(f"{count} of run {folder.name}, signed with the key {key_id}; {BUNDLE_FILE} has all")
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
def _needs_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"attest: the package {(error.name or '').partition('.')[0]} is not installed"
        raise InfrastructureError(message, remedy=PACKAGE_REMEDY) from None


def _verify(options: argparse.Namespace) -> int:
    if options.key is None:
        message = "attest --verify: got no --key, expected the public key of those who sign"
        raise UsageError(message, remedy="Add it: --key KEY.pub")
    if options.output or options.decision:
        raise UsageError("attest --verify: cannot be combined with --output or --decision")
    with _needs_packages():
        from ci.proof import keys
    key = keys.load_public_key(options.key)
    if options.run:
        folder = _run_folder(options.results, options.run)
    else:
        folder = find_run_folder(options.verify)
    today = datetime.now(UTC).date()
    open_envelope = partial(keys.open_envelope, key=key)
    demands = _demands(options.config) if options.config else None
    found = verify(options.verify, folder, open_envelope, today, demands)
    code = ExitCode.PRODUCT_FAILURE if found.faults else ExitCode.PASSED
    if options.format == "json":
        show(json.dumps(_document(found, key.keyid), indent=2))
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
    show(f"{count} of run {run} verified, signed with the key {key.keyid}")
    return code


def _demands(path: Path) -> Demands:
    keeper = Gatekeeper.of(path, None)
    if keeper is None:
        raise without_rules(path)
    return Demands(path=path, policy=keeper.policy, waivers=keeper.waivers)


def _document(found: StatementSet, key_id: str) -> dict[str, object]:
    """The outcome of a verification; without one that holds, no statement is quoted."""
    tests = {} if found.faults else {of.platform: it.result for of, it in found.of(StatedTests)}
    summaries = [] if found.faults else [it for _, it in found.of(VerificationSummary)]
    return {
        "run_id": found.run.run_id if found.run and not found.faults else None,
        "key": key_id,
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
