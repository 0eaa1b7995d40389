"""Writes the statements about a run into a folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ci.errors import InfrastructureError
from ci.model.decision import Decision
from ci.proof.evidence import read_evidence
from ci.proof.run_statements import (
    PROVENANCE_SUFFIX,
    SUMMARY_FILE,
    TESTS_SUFFIX,
    run_statements,
    summary_statement,
)
from ci.proof.statements import SignedFiles, envelope_digest
from ci.store.folder import make_folder, read_decision
from ci.util.files import write_atomically
from ci.util.text import os_reason

WRITTEN = (PROVENANCE_SUFFIX, SUMMARY_FILE, TESTS_SUFFIX)  # ends of names, if a key signs


@dataclass(frozen=True, kw_only=True)
class Signing:
    """What signs statements, and how their files are named."""

    sign: Callable[[bytes], str]
    files: SignedFiles


def write_statements(
    folder: Path,
    output: Path,
    *,
    identity: str,
    decision: Decision | None,
    signing: Signing | None,
) -> list[Path]:
    """Write each statement about the run in ``folder``, signed if it can be; return the files.

    Signed ones are also written together, as a bundle. Files of an earlier call are replaced, but
    those that something else has signed.
    """
    files = signing.files if signing else SignedFiles.KEY
    evidence = read_evidence(folder)
    texts = {}
    made = run_statements(evidence, identity, decided=decision is not None)
    for name, statement in made.items():
        texts[_named(name, files)] = _text(statement.to_json(), signing)
    if decision is not None:
        inputs = {it: envelope_digest(text) for it, text in texts.items()}
        summary = summary_statement(evidence, decision, inputs, identity)
        texts[_named(SUMMARY_FILE, files)] = _text(summary.to_json(), signing)
    if signing is not None:
        texts[files.bundle_file] = "\n".join(texts.values())
    make_folder(output, "--output")
    ends = (*(_named(it, files) for it in WRITTEN), files.bundle_file)
    for path in sorted(output.iterdir()):
        if path.name.endswith(ends) and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        write_atomically(output / name, f"{text}\n")
    return [output / name for name in texts]


def _named(name: str, files: SignedFiles) -> str:
    return name.removesuffix(SignedFiles.KEY.end) + files.end


def _text(statement: str, signing: Signing | None) -> str:
    return signing.sign(statement.encode()) if signing else statement


def read_named_decision(path: Path) -> Decision:
    """Read the decision of the gate; raises ``InfrastructureError`` if it is none."""
    try:
        return read_decision(path)
    except OSError as error:
        raise InfrastructureError(f"--decision: {os_reason(error)}") from error
    except ValueError as error:
        raise InfrastructureError(f"--decision: {path}: {error}") from error
