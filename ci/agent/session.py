"""The environment of a stage, held open for a shell.

The last stage of a session runs ``hold``, which does nothing: it has the user, the variables, the
folder and the devices of a stage. ``enter``, which the engine starts beside it, takes these over
and runs a shell. The session ends with its shell.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Mapping, Sequence

HOLD = "hold"
ENTER = "enter"
INTERACTIVE = "--interactive"
SHELLS = ("bash", "sh")  # the first that there is, at a terminal
FOUND_S = 10.0  # until the stage's process exists, after the event that it starts
POLL_S = 0.05
OWN_VARIABLES = ("TERM", "COLUMNS", "LINES")  # of the terminal, not of the stage


def hold() -> None:
    """Wait until the stage is ended, which is no failure."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


def enter(arguments: Sequence[str]) -> int:
    """Run a shell in the environment of the stage that ``hold`` keeps open; return its exit code.

    Without ``INTERACTIVE`` it reads commands from the standard input, as ``sh`` does.
    """
    holder = _find_holder()
    if holder is None:
        sys.stderr.write("the environment of the session no longer exists\n")
        return 1
    variables = _environment(holder)
    variables.update({name: os.environ[name] for name in OWN_VARIABLES if name in os.environ})
    found = (shutil.which(name, path=variables.get("PATH")) for name in SHELLS)
    command = [next(filter(None, found), "sh"), "-i"] if INTERACTIVE in arguments else ["sh"]
    # Ctrl-C is for the shell. If the terminal goes away, the session ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        return _run(command, variables, f"/proc/{holder}/cwd")
    finally:
        with suppress(ProcessLookupError):
            os.kill(holder, signal.SIGTERM)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _run(command: Sequence[str], variables: Mapping[str, str], folder: str) -> int:
    process = subprocess.Popen(
        command,
        env=variables,
        cwd=os.readlink(folder),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    code = process.wait()
    return code if code >= 0 else 128 - code  # as a shell would


def _find_holder() -> int | None:
    """Return the process of ``hold`` that was started with the same program as this one."""
    wanted = [sys.argv[0], HOLD]
    deadline = time.monotonic() + FOUND_S
    while time.monotonic() < deadline:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[-3:-1] == wanted and _environment(int(folder.name)):
                    return int(folder.name)
        time.sleep(POLL_S)
    return None


def _environment(process: int) -> dict[str, str]:
    content = Path(f"/proc/{process}/environ").read_bytes()
    pairs = (os.fsdecode(item).partition("=") for item in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name}
