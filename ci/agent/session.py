"""The environment of a stage, held open for a shell.

The last stage of a session runs ``hold``, which does nothing: it has the user, the variables, the
folder and the devices of a stage. ``enter``, which the engine starts beside it, takes these over
and runs a shell. The session ends with its last shell.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Mapping, Sequence

from ci.agent.time_limits import FOUND_S
from ci.protocol.job import INTERACTIVE

HOLD = "hold"
SHELLS = ("bash", "sh")  # the first that there is, at a terminal
DOOR = 0  # the descriptor of a pipe that every shell writes to, and keeps open until it ends
KNOCK = b"."
POLL_S = 0.05
OWN_VARIABLES = ("TERM", "COLUMNS", "LINES")  # of the terminal, not of the stage


def hold() -> None:
    """Wait until the stage is ended, or the last shell has left; neither is a failure."""

    def end(_number: int, _frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    reading, writing = os.pipe()
    os.dup2(reading, DOOR)
    os.close(reading)
    os.read(DOOR, 1)  # the first shell
    os.close(writing)  # from now on, the pipe ends with its shells, however they end
    while os.read(DOOR, 1):
        pass
    sys.exit(0)


def enter(arguments: Sequence[str]) -> int:
    """Run a shell in the environment of the stage that ``hold`` keeps open; return its exit code.

    Without ``INTERACTIVE`` it reads commands from the standard input, as ``sh`` does.
    """
    found = _find_holder()
    if found is None:
        sys.stderr.write("the environment of the session no longer exists\n")
        return 1
    holder, door = found
    variables = _environment(holder)
    variables.update({name: os.environ[name] for name in OWN_VARIABLES if name in os.environ})
    shells = (shutil.which(name, path=variables.get("PATH")) for name in SHELLS)
    interactive = INTERACTIVE in arguments
    command = [next(filter(None, shells), "sh"), "-i"] if interactive else ["sh"]
    # Ctrl-C is for the shell. If the terminal goes away, the session ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        return _run(command, variables, f"/proc/{holder}/cwd", interactive=interactive)
    finally:
        os.close(door)


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _run(
    command: Sequence[str], variables: Mapping[str, str], folder: str, *, interactive: bool
) -> int:
    process = subprocess.Popen(
        command,
        env=variables,
        cwd=os.readlink(folder),
        # At a terminal, the kernel hangs all its processes up.
        start_new_session=not interactive,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )
    try:
        code = process.wait()
    except SystemExit:
        if not interactive:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGHUP)
        raise
    return code if code >= 0 else 128 - code  # as a shell would


def _find_holder() -> tuple[int, int] | None:
    """Return the process of ``hold`` of the same program as this one, and its open door."""
    wanted = [sys.argv[0], HOLD]
    deadline = time.monotonic() + FOUND_S
    while time.monotonic() < deadline:
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if words[-3:-1] == wanted and (door := _open_door(folder)) is not None:
                    return int(folder.name), door
        time.sleep(POLL_S)
    return None


def _open_door(process: Path) -> int | None:
    """Knock at a process of ``hold``; return the descriptor to close at the end.

    ``None``: it does not listen yet.
    """
    door = os.open(process / "fd" / str(DOOR), os.O_WRONLY)
    if stat.S_ISFIFO(os.fstat(door).st_mode):
        os.write(door, KNOCK)
        return door
    os.close(door)
    return None


def _environment(process: int) -> dict[str, str]:
    content = Path(f"/proc/{process}/environ").read_bytes()
    pairs = (os.fsdecode(item).partition("=") for item in content.split(b"\0"))
    return {name: value for name, _, value in pairs if name}
