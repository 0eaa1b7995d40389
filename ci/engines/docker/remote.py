"""A remote engine over SSH: its socket is forwarded to a private one on this machine.

The ssh command forwards it, so keys, ports and jump hosts come from ~/.ssh/config. The SDK's own
``ssh://`` ignores a port in that file, and neither of its two modes supports all requests.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from time import monotonic, sleep
from urllib.parse import urlsplit

from ci.errors import ConfigError, InfrastructureError
from ci.util import process
from ci.util.text import mask_credentials, strip_controls

CONFIG_VARIABLE = "INFINI_CI_SSH_CONFIG"  # a file in place of ~/.ssh/config
ENGINE_SOCKET = "/var/run/docker.sock"

START_S = 60.0  # jump hosts are slow; CONNECT_S limits a host that does not answer at all
CONNECT_S = 15
POLL_S = 0.02  # for the socket that ssh creates: a fraction of the 0.2 s of a login
LONGEST_FOLDER = 70  # bytes: the socket's path then stays below the kernel's 107
SHORT_FOLDER = "/tmp"  # noqa: S108 - mkdtemp's are private

# The user's own connections to the machine, shared ones too, are not touched. ssh asks no
# questions: there may be no one to answer.
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_S),
    "ControlMaster": "no",
    "ControlPath": "none",  # a shared connection would keep the forwarding when this run has ended
    "ExitOnForwardFailure": "yes",
    "ForwardAgent": "no",
    "LogLevel": "ERROR",
    "PermitLocalCommand": "no",
    "ServerAliveInterval": "15",
    "StreamLocalBindUnlink": "yes",
}

# Makes ssh end with its owner, even a killed one, where Linux runs. This is a program of its own:
# `preexec_fn` must not be used with threads. The owner may have died before the call.
LAUNCHER = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""

# Messages of ssh, and their remedies.
REMEDIES = {
    "Host key verification failed": "compare the machine's host key and add it to known_hosts",
    "Permission denied": "add your public key to ~/.ssh/authorized_keys there; a key with a"
    " passphrase must be in ssh-agent, as ssh cannot ask for it",
    "Could not resolve hostname": "correct the name, or describe it in ~/.ssh/config",
    "Connection refused": "check host and port, and whether sshd runs there",
    "Connection timed out": "check host and port, and whether a firewall is in between",
    "No route to host": "check the host and the network",
    "administratively prohibited": "set AllowStreamLocalForwarding to yes in sshd_config there",
}


@dataclass(frozen=True, kw_only=True)
class RemoteMachine:
    """A machine that ssh can reach, and the path of the engine's socket there."""

    destination: str  # ssh://[user@]host[:port]
    engine_socket: str
    config: str | None

    @classmethod
    def parse(cls, url: str, environ: Mapping[str, str]) -> RemoteMachine:
        """Read ``ssh://[user@]host[:port][/path/of/docker.sock]``."""
        parts = urlsplit(url)
        if not parts.hostname or parts.password is not None or parts.query or parts.fragment:
            raise ConfigError(
                f"'{mask_credentials(url)}' is not the address of an engine,"
                " expected ssh://[user@]host[:port][/socket]",
                remedy="Passwords are not supported: let ssh log in with a key.",
            )
        return cls(
            destination=f"ssh://{parts.netloc}",
            engine_socket=parts.path.rstrip("/") or ENGINE_SOCKET,
            config=environ.get(CONFIG_VARIABLE) or None,
        )

    @property
    def _ssh(self) -> list[str]:
        return ["ssh", *(["-F", self.config] if self.config else [])]

    def command(self, *options: str) -> list[str]:
        """Return the ssh command to this machine; ssh takes the first of two equal options."""
        settings = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
        return [*self._ssh, "-nT", *options, *settings, "--", self.destination]

    def failure(self, message: str) -> InfrastructureError:
        """Return the error for a message of ssh."""
        reason = strip_controls(message.strip()).replace("\n", "\n    ") or "it printed no message"
        by_hand = f"try it by hand: {' '.join([*self._ssh, self.destination])}"
        known = [text for hint, text in REMEDIES.items() if hint in message]
        return InfrastructureError(
            f"ssh cannot reach {self.destination}: {reason}",
            remedy="; ".join([*known[:1], by_hand]),
        )

    def missing_engine(self) -> tuple[str, str] | None:
        """Return why the engine's socket cannot be used, and the remedy, or None."""
        if self._is_true("! -S"):
            message = f"there is no socket {self.engine_socket} on that machine"
            return message, f"start an engine there, or name its socket: {self.destination}/PATH"
        if self._is_true("! -w"):
            message = f"permission denied on {self.engine_socket} of that machine"
            return message, "let the user of that machine join the group that owns it (docker)"
        return None

    def _is_true(self, test: str) -> bool:
        """Test the socket in the shell there; False if the user has no shell."""
        question = f"test {test} {shlex.quote(self.engine_socket)} && echo true"
        answer = process.run([*self.command(), question], check=False, timeout_s=START_S)
        return answer.stdout.strip() == "true"


class SocketForward:
    """An ssh process that forwards a private socket here to ``target`` on the machine.

    ``start`` starts or restarts it. It ends at ``close`` or with this process.
    """

    def __init__(self, machine: RemoteMachine, target: str) -> None:
        if shutil.which("ssh") is None:
            raise InfrastructureError("ssh was not found", remedy="install openssh-client")
        self.machine = machine
        # No other user may enter the folder.
        place = None if len(os.fsencode(gettempdir())) <= LONGEST_FOLDER else SHORT_FOLDER
        self._folder = Path(mkdtemp(prefix="infini-ci-ssh-", dir=place))
        self._log = self._folder / "ssh.log"
        self.socket = self._folder / "socket"
        self._command = machine.command("-N", "-L", f"{self.socket}:{target}")
        self._children: list[subprocess.Popen[bytes]] = []
        self.close = weakref.finalize(self, _close, self._folder, self._children)

    def start(self) -> None:
        """Connect; raises ``InfrastructureError`` with ssh's own message."""
        _end(self._children)
        self.socket.unlink(missing_ok=True)
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        with self._log.open("wb") as log:
            child = subprocess.Popen(
                [*launcher, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # after Ctrl-C this connection is needed to end the stages
            )
        self._children.append(child)
        deadline = monotonic() + START_S
        while not _is_listening(self.socket):
            if child.poll() is not None or monotonic() > deadline:
                raise self.machine.failure(self._log.read_text(errors="replace"))
            sleep(POLL_S)

    def alive(self) -> bool:
        """Tell whether ssh still runs."""
        return any(child.poll() is None for child in self._children)


def _is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    while children:
        child = children.pop()
        child.terminate()
        child.wait()


def _close(folder: Path, children: list[subprocess.Popen[bytes]]) -> None:
    _end(children)
    shutil.rmtree(folder, ignore_errors=True)
