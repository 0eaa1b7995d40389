"""What building the library costs: CPU-seconds of the whole process tree, and peak memory.

Run with the Python of an environment that has torch and the build requirements::

    python bench/build_cost.py [--json FILE]

Every step is cold: a fresh folder, no compiler cache. CPU-seconds (user + system) are what
to compare; wall seconds on shared machines are noise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measure(name: str, command: list[str]) -> dict[str, object]:
    """Runs a command in a child of its own, so that the usage is of this command alone."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        started = time.monotonic()
        finished = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures = {
            "name": name,
            "exit_code": finished.returncode,
            "wall_s": round(time.monotonic() - started, 2),
            "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
            "peak_rss_of_any_process_mb": round(usage.ru_maxrss / 1024),
        }
        os.write(write_end, json.dumps(figures).encode())
        if finished.returncode != 0:
            sys.stderr.buffer.write(finished.stderr)
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as pipe:
        return json.loads(pipe.read())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        python = (sys.executable, "-m")
        generate = [*python, "codegen", "torch", "--output-dir", f"{scratch}/generated"]
        install = [
            *(*python, "pip", "install", ".", "--no-build-isolation", "--no-deps"),
            *("--target", f"{scratch}/site", f"--config-settings=build-dir={scratch}/build"),
        ]
        figures = [
            measure("generate, cold", generate),
            measure("generate, nothing changed", generate),
            measure("pip install, cold", install),
        ]
    for row in figures:
        print(
            f"{row['name']:28} {row['cpu_s']:8.2f} CPU-s {row['wall_s']:8.2f} s wall "
            f"{row['peak_rss_of_any_process_mb']:6} MB peak"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return max(row["exit_code"] for row in figures)


if __name__ == "__main__":
    sys.exit(main())
