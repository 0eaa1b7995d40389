"""Runs the calls of one operator test with torch alone, in a process that may die of them.

The library is not called. ``guards`` uses it for a test whose process died: torch itself dies of
some calls on some devices.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from harness import refusal, taken_instead
from names import TestName
from reasons import classify
from samples import load
from target import answers, prepare

import torch

NO_ANSWER = 3  # exit code: the device no longer works after the calls


def death_of_torch(test: TestName, *, platform: str, simulated: bool, limit_s: float) -> str | None:
    """Returns how torch alone dies of a test's calls: ``SIGSEGV``, or the device does not answer.

    None if it survives them, or takes longer than ``limit_s`` seconds (0: no limit).
    """
    if not test.node_id.partition("[")[0].endswith("test_torch_ops.py::test_overload"):
        return None  # its calls are not those of the samples
    names = (test.properties[key] for key in ("overload", "dtype", "device"))
    command = [sys.executable, __file__, *names, platform, *(["--simulated"] if simulated else [])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit_s or None)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "the device no longer answers" if done.returncode == NO_ANSWER else None


def main(overload: str, dtype: str, device: str, platform: str, *options: str) -> int:
    prepare(device, platform, simulated="--simulated" in options)
    name, _, variant = overload.partition(".")
    aten = getattr(getattr(torch.ops.aten, name), variant or "default")
    for sample in load().samples[overload][dtype]:
        error = refusal(sample, aten, device)
        if error is not None and classify(error) is None:
            taken_instead(sample, aten, device)
    return 0 if answers(device) else NO_ANSWER


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
