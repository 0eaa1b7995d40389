"""Writes the statements about a run into a folder."""

from __future__ import annotations

from collections.abc import Callable
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
from ci.proof.statements import envelope_digest
from ci.store.folder import make_folder, read_decision
from ci.util.files import write_atomically
from ci.util.text import os_reason

BUNDLE_FILE = "attestations.intoto.jsonl"
WRITTEN = (PROVENANCE_SUFFIX, SUMMARY_FILE, TESTS_SUFFIX, BUNDLE_FILE)  # ends of names


def write_statements(
    folder: Path,
    output: Path,
    *,
    identity: str,
    decision: Decision | None,
    sign: Callable[[bytes], str] | None,
) -> list[Path]:
    """Write each statement about the run in ``folder``, signed if it can be; return the files.

    Signed ones are also written together, as a bundle. Files of an earlier call are replaced.
    """
    evidence = read_evidence(folder)
    texts = {}
    made = run_statements(evidence, identity, decided=decision is not None)
    for name, statement in made.items():
        texts[name] = _text(statement.to_json(), sign)
    if decision is not None:
        inputs = {it: envelope_digest(text) for it, text in texts.items()}
        summary = summary_statement(evidence, decision, inputs, identity)
        texts[SUMMARY_FILE] = _text(summary.to_json(), sign)
    if sign is not None:
        texts[BUNDLE_FILE] = "\n".join(texts.values())
    make_folder(output, "--output")
    for path in sorted(output.iterdir()):
        if path.name.endswith(WRITTEN) and path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        write_atomically(output / name, f"{text}\n")
    return [output / name for name in texts]


def _text(statement: str, sign: Callable[[bytes], str] | None) -> str:
    return sign(statement.encode()) if sign else statement


def read_named_decision(path: Path) -> Decision:
    """Read the decision of the gate; raises ``InfrastructureError`` if it is none."""
    try:
        return read_decision(path)
    except OSError as error:
        raise InfrastructureError(f"--decision: {os_reason(error)}") from error
    except ValueError as error:
        raise InfrastructureError(f"--decision: {path}: {error}") from error
