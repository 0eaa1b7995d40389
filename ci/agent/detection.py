"""Asks a probe command which devices there are, and in what state."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .lines import parse_object

PROBE_TIMEOUT_S = 60.0  # a driver without its daemon takes seconds for each device to wake up
KILL_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Detection:
    """What a probe found: ``devices``, ``none``, or ``unknown``, which is never idle or free."""

    status: str
    reason: str | None = None
    devices: tuple[dict[str, Any], ...] = ()

    def device(self, uuid: str) -> dict[str, Any]:
        """The device of a name; of one that no probe knows, nothing but the name."""
        nothing = {"uuid": uuid, "index": None, "health": "unknown", "memory_used": None}
        return next((found for found in self.devices if found["uuid"] == uuid), nothing)


def detect(command: list[str], environment: dict[str, str]) -> Detection:
    """Run the probe; whatever goes wrong with it is ``unknown``, with the reason."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        return Detection("unknown", f"{command[0]}: {os.strerror(error.errno or 0)}")
    try:
        output, complaints = process.communicate(timeout=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a hung driver keeps it in the kernel
            process.communicate(timeout=KILL_TIMEOUT_S)
        return Detection("unknown", f"the probe did not answer within {PROBE_TIMEOUT_S:.0f} s")
    if process.returncode != 0:
        return Detection("unknown", _failure(process.returncode, complaints))
    return _answer(output)


def _failure(code: int, complaints: bytes) -> str:
    lines = complaints.decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
    return f"the probe {how}{': ' + last.strip() if last else ''}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _answer(output: bytes) -> Detection:
    """Read the last line: a vendor's library may have printed before it."""
    try:
        answer = parse_object(output.splitlines()[-1].decode(errors="replace"))
        devices = tuple(answer.get("devices", ()))
        return Detection(answer["status"], answer.get("reason"), devices)
    except (IndexError, ValueError, TypeError, KeyError):
        text = output[-200:].decode(errors="replace")
        return Detection("unknown", f"the probe did not answer in JSON: {text!r}")
