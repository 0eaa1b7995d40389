"""A real run is attested and verified; a byte that changes afterwards is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.errors import ExitCode
from tests.ci.attested_runs import write_key
from tests.e2e.plans import PROJECT
from tests.forked import run_ci


@pytest.mark.complete
def test_a_run_is_attested_and_verified(tmp_path: Path) -> None:
    project, results = tmp_path / "project", tmp_path / "results"
    suite = "import tiny\n\n\ndef test_answer():\n    assert tiny.ANSWER == 42\n"
    config = "project: tiny\nplatforms:\n  cpu: {}\n"
    for name, text in {**PROJECT, "tests/test_tiny.py": suite, "ci.yaml": config}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    key = write_key(tmp_path / "key")
    here = ("--results", results)
    ran = run_ci("run", "cpu", "--engine", "host", "--source", project, *here)
    assert ran.returncode == ExitCode.PASSED, ran.stderr
    signed = run_ci("attest", "latest", "--key", key, *here)
    assert signed.returncode == ExitCode.PASSED, signed.stderr

    latest = results / "latest"
    verify = ("attest", "--verify", latest, "--key", key.with_name("key.pub"))
    verified = run_ci(*verify)
    assert verified.returncode == ExitCode.PASSED, verified.stderr
    assert "cpu: PASSED, 1 passed, 0 warned, 0 failed\n" in verified.stdout
    [row] = json.loads((latest / "results.json").read_text())["platforms"]
    built = [it["path"] for it in row["distributions"] if it["path"] and not it["given"]]
    assert [path for path in built if f"{path}: built by " not in verified.stdout] == []

    for name in ("results.json", "cpu/pytest.jsonl", *built):
        before = (latest / name).read_bytes()
        (latest / name).write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
        found = run_ci(*verify)
        assert found.returncode == ExitCode.PRODUCT_FAILURE
        assert f"error: attest --verify: {name}: got SHA-256 " in found.stderr
        (latest / name).write_bytes(before)
    assert run_ci(*verify).returncode == ExitCode.PASSED
