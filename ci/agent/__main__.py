"""``python agent.pyz JOB.json`` or ``python -m ci.agent JOB.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .run import Run

PROTOCOL = 3


def main() -> None:
    """Carry out the job named on the command line and exit as its stages did."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if job["protocol"] != PROTOCOL:
        sys.exit(f"agent: job protocol {job['protocol']}, expected {PROTOCOL}")
    sys.exit(Run(job).execute())


if __name__ == "__main__":
    main()
