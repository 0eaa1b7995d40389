"""Times the kernels of the installed library on the platform of a run, for its stage ``bench``.

``python -m bench.kernel_times FILE``: it needs only what the library needs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench import kernel_worker

ROUNDS = 5


def main(path: Path) -> int:
    """Write the medians of all slots, in seconds; return 1 if a case failed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        kernel_worker.main(os.environ.get("INFINI_CI_TORCH_DEVICE", "cpu"), ROUNDS, ())
    found = json.loads(printed.getvalue())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmarks": benchmarks(found["cases"])}), encoding="utf-8")
    failed = [case for case in found["cases"] if "error" in case]
    for case in failed:
        print(f"{case['case']}: {case['error']}", file=sys.stderr)
    return 1 if failed or not found["cases"] else 0


def benchmarks(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The medians in the minimal form that stages of benchmarks may write."""
    return [
        {
            "name": f"{case['case']}: {name}",
            "value": median(seconds),
            "unit": "s",
            "direction": "lower",
            "repetitions": len(seconds),
        }
        for case in cases
        for name, seconds in case.get("seconds", {}).items()
    ]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
