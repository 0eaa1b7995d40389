"""Runs the calls of operator tests with torch alone, in a process that may die of them.

The library is not called. ``guards`` uses it for a test whose process died: torch itself dies of
some calls on some devices.
"""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
from collections.abc import Sequence

from harness import refusal, taken_instead
from names import TestName
from reasons import classify
from samples import aten_overload, load
from target import answers, prepare

NO_ANSWER = 3  # exit code: the device no longer works after the calls


def death_of_torch(
    tests: Sequence[TestName], *, platform: str, simulated: bool, limit_s: float
) -> str | None:
    """Returns how torch alone dies of the calls of tests, one after the other, or at their end.

    ``SIGSEGV``, or the device does not answer. None if it survives them, or takes longer than
    ``limit_s`` seconds (0: no limit).
    """
    calls = [
        [test.properties[key] for key in ("overload", "dtype", "device")]
        for test in tests
        if test.node_id.partition("[")[0].endswith("test_torch_ops.py::test_overload")
    ]
    if not calls:
        return None  # other tests do not call torch with the samples
    command = [sys.executable, __file__, platform, *(["--simulated"] if simulated else [])]
    try:
        done = subprocess.run(
            command, input=json.dumps(calls).encode(), capture_output=True, timeout=limit_s or None
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    return "the device no longer answers" if done.returncode == NO_ANSWER else None


def main(platform: str, *options: str) -> int:
    calls: list[list[str]] = json.load(sys.stdin)
    device = calls[-1][-1]
    prepare(device, platform, simulated="--simulated" in options)
    samples = load().samples
    for overload, dtype, _ in calls:
        aten = aten_overload(overload)
        for sample in samples[overload][dtype]:
            error = refusal(sample, aten, device)
            if error is not None and classify(error) is None:
                taken_instead(sample, aten, device)
    gc.collect()  # a call may have damaged an object that is only looked at here
    return 0 if answers(device) else NO_ANSWER


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
