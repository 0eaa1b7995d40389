"""Programs that tests start. A failure shows what the program complained about."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def output_of(command: Sequence[str | Path], **options: Any) -> str:
    """Runs a program; returns what it prints. ``options`` are those of ``subprocess.run``."""
    finished: subprocess.CompletedProcess[str]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    sys.stderr.write(finished.stderr)
    if finished.returncode:
        lines = finished.stderr.splitlines() or ["it printed no error"]
        # The first error of a compiler, without the folder; the last line of a traceback.
        error = next((line for line in lines if "error:" in line), lines[-1])
        how = f"{Path(command[0]).name} ended with exit code {finished.returncode}"
        raise AssertionError(f"{how}: {re.sub(r'^[^ ]*/', '', error)}")
    return finished.stdout
