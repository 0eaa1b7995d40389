"""``python competitor.py FOLDER NAME-LIFE``: takes leases until 200 are there, or dies.

The holder of a device creates the file of the device, which must not exist yet, and removes it.
Only a holder that is about to be killed leaves the file, with a note of that inside. A killed
holder ends with its lock held.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from ci.agent import lease
from ci.agent.lease import Leases
from tests.ci.agent_job import device_job

LEASES = 200
DOOMED = "doomed"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    folder, chance = Path(sys.argv[1]), random.Random(sys.argv[2])  # noqa: S311
    lease.POLL_S = 0.01
    record = os.open(folder / "taken", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    while os.pread(record, 1 << 20, 0).count(b"\n") < LEASES:
        leases = make_leases(folder, chance)
        leases.check()
        leases.take("pytest")
        held = leases.variables()["VISIBLE"].split(",")
        for uuid in held:
            begin(folder / uuid)
        os.write(record, f"{sys.argv[2].split('-')[0]} {','.join(held)}\n".encode())
        if chance.random() < 0.05:
            for uuid in held:
                (folder / uuid).write_text(DOOMED)
            die()
        for uuid in held:
            (folder / uuid).unlink()
        leases.release()


def make_leases(folder: Path, chance: random.Random) -> Leases:
    def stopped() -> bool:  # called between two attempts, so also with a place in the queue
        if chance.random() < 0.002:
            die()
        return False

    return Leases(
        device_job(folder, count=chance.choice((1, 1, 2)), wait_s=60),
        run_id=sys.argv[2],
        platform="nvidia",
        environment=os.environ,
        emit=lambda _: None,  # no one listens
        stopped=stopped,
    )


def begin(path: Path) -> None:
    """Own a device; fail if another process owns it."""
    if path.exists() and path.read_text() == DOOMED:
        path.unlink()
    with path.open("x"):
        pass


if __name__ == "__main__":
    main()
