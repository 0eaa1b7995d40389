"""The checks with sanitizers fail when something is reported, and when nothing could be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.sanitizers.__main__ import ADDRESS, HERE, THREAD, Checks, Sanitizer

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler is installed")


def compiled(folder: Path, flags: str) -> Path:
    library = folder / "faults.so"
    options = ["-std=c++17", "-shared", "-fPIC", *flags.split(), "-o", str(library)]
    subprocess.run(["c++", *options, str(HERE / "faults.cc")], check=True)
    return library


@pytest.mark.parametrize(
    ("sanitizer", "name"), [(ADDRESS, "beyond"), (ADDRESS, "overflow"), (THREAD, "race")]
)
def test_a_fault_must_be_reported(tmp_path: Path, sanitizer: Sanitizer, name: str) -> None:
    checks = Checks(sanitizer, tmp_path)
    found = checks.fault(compiled(tmp_path, sanitizer.flags), name)
    assert (found.exit_code, found.summary) == (0, "reported"), found.last_lines
    silent = checks.fault(compiled(tmp_path, ""), name)
    assert (silent.exit_code, silent.summary) == (1, "")


@pytest.mark.complete  # the one before has the reports
def test_a_report_fails_tests_that_pass(tmp_path: Path) -> None:
    library = compiled(tmp_path, THREAD.flags)
    test = tmp_path / "test_race.py"
    test.write_text(f"import ctypes\ndef test(): ctypes.CDLL('{library}').race()\n")
    found = Checks(THREAD, tmp_path).test("race", str(test), preload=True)
    assert found.summary == "1 passed"
    assert found.exit_code != 0
    assert "ThreadSanitizer: data race" in found.last_lines
