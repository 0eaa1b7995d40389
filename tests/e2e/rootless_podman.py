"""A rootless Podman of its own, for tests: an ordinary user's, with a service and a storage.

Nothing of the machine changes. The user exists only in files that are mounted over the machine's
for the service and its containers, in a mount namespace of their own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep

import psutil

USER, USER_ID = "podman-tests", 61234
IDS = f"{USER}:{10**9}:65536\n"
HOME = "/mnt"  # of the user, in the namespace
FILES = {
    "passwd": f"{USER}:x:{USER_ID}:{USER_ID}::{HOME}:/bin/sh\n",
    "group": f"{USER}:x:{USER_ID}:\n",
    "subuid": IDS,
    "subgid": IDS,
}
PROGRAMS = ("podman", "newuidmap", "slirp4netns", "catatonit", "unshare", "setpriv")
START_S = 30.0
END_S = 10.0

# Machines without udev have a device of networks for root alone. The runtime crun refuses a
# hierarchy of both versions of cgroups.
START = f"""\
mount --make-rprivate / && mount --bind "$FOLDER" {HOME} || exit
for name in {" ".join(FILES)}; do mount --bind "$FOLDER/etc/$name" "/etc/$name" || exit; done
if [ -e /sys/fs/cgroup/unified ]; then umount /sys/fs/cgroup/unified; fi
mount -t tmpfs tmpfs /dev/net && mknod -m 666 /dev/net/tun c 10 200 || exit
mount --make-rshared / && cd {HOME} || exit
exec setpriv --reuid {USER_ID} --regid {USER_ID} --clear-groups env -i PATH="$PATH" \\
    HOME={HOME} USER={USER} XDG_RUNTIME_DIR={HOME}/run \\
    podman --storage-driver overlay system service --time 0 "unix://{HOME}/run/podman.sock"
"""


class MissingPodmanError(Exception):
    """This machine cannot run a rootless Podman for tests; the text says why."""


@contextmanager
def rootless_podman() -> Iterator[Path]:
    """Yield a folder of the user of a rootless Podman, with the socket in ``run/podman.sock``.

    Everything in the folder, and the service with all its processes, is gone afterwards.
    """
    if os.geteuid() != 0:
        raise MissingPodmanError("only root can make a user for a rootless Podman")
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        raise MissingPodmanError(f"not installed: {', '.join(missing)}")
    folder = Path(mkdtemp(prefix="podman-tests-"))
    folder.chmod(0o755)
    for name in ("etc", "run"):
        (folder / name).mkdir()
    for name, line in FILES.items():
        (folder / "etc" / name).write_text(Path("/etc", name).read_text() + line)
    for path in (folder, folder / "run"):
        os.chown(path, USER_ID, USER_ID)
    log = folder / "service.log"
    with log.open("wb") as output:
        service = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", START],
            env={**os.environ, "FOLDER": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = monotonic() + START_S
        while not _is_listening(folder / "run" / "podman.sock"):
            if service.poll() is not None or monotonic() > deadline:
                raise MissingPodmanError(f"the service did not start: {log.read_text()}")
            sleep(0.05)
        yield folder
    finally:
        service.terminate()
        service.wait()
        _end_processes()
        shutil.rmtree(folder)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(str(path))
        return True
    return False


def _end_processes() -> None:
    """End what the user's containers and networks left, by their ids: no one else has this user."""
    found = []
    for process in psutil.process_iter(["uids"]):
        uids = process.info["uids"]
        if uids and (uids.real == USER_ID or 10**9 <= uids.real < 10**9 + 65536):
            found.append(process)
            with suppress(psutil.NoSuchProcess):
                process.kill()
    psutil.wait_procs(found, timeout=END_S)
