"""Wait until a container has no network: only its engine can disconnect it.

The agent asks with an event, and believes what it sees: which interfaces of its network namespace
are up. A stage has no capability to bring another one up.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import time
from collections.abc import Callable, Sequence

from ci.protocol.events import Event, NetworkRemoved, NetworkWaiting
from ci.protocol.job import StagePlan

SIOCGIFFLAGS = 0x8913  # linux/sockios.h
IFF_UP = 1  # linux/if.h
IFREQ = "16sH14x"  # struct ifreq: a name and its flags
POLL_S = 0.02  # an engine needs 0.1 s
ASK_AGAIN_S = 30.0  # a request may have failed; readers limit the number of events


class NetworkError(Exception):
    """The container kept its network; the message has the reason and the remedy."""


def wait_until_isolated(
    stage: StagePlan, run_id: str, emit: Callable[[Event], None], stopped: Callable[[], bool]
) -> None:
    """Ask for the removal of all networks, and wait for it as long as the stage may run.

    Raises ``NetworkError`` if one remains.
    """
    start = time.monotonic()
    asked_s = -ASK_AGAIN_S
    while (names := active_interfaces()) and not stopped():
        waited = time.monotonic() - start
        if waited >= stage.timeout_s:
            raise NetworkError(still_connected(stage.name, run_id, names, waited))
        if waited - asked_s >= ASK_AGAIN_S:
            first, asked_s = asked_s < 0, waited
            late = f"{stage.name} has waited {waited:.0f} s for the removal of {', '.join(names)}"
            text = "" if first else late
            emit(NetworkWaiting(stage.name, tuple(names), text, waited_s=waited))
        time.sleep(POLL_S)
    if not names:
        emit(NetworkRemoved(stage.name, waited_s=time.monotonic() - start))


def still_connected(stage: str, run_id: str, names: Sequence[str], waited_s: float) -> str:
    """Return why a stage did not run, and the remedy."""
    return (
        f"stage {stage} needs a container without a network; {', '.join(names)} remained for"
        f" {waited_s:.0f} s, as no caller disconnected it (python -m ci run --resume {run_id})"
    )


def active_interfaces() -> list[str]:
    """Return the network interfaces that are up, without the loopback.

    Some kernels give every container interfaces for tunnels, which are down.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        return [name for _, name in socket.if_nameindex() if name != "lo" and _is_up(line, name)]


def _is_up(line: socket.socket, name: str) -> bool:
    request = struct.pack(IFREQ, name.encode(), 0)
    try:
        answer = fcntl.ioctl(line.fileno(), SIOCGIFFLAGS, request)
    except OSError:  # it has just been removed
        return False
    return bool(struct.unpack(IFREQ, answer)[1] & IFF_UP)
