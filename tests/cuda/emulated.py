"""The CUDA implementations, run on host memory by the emulator in tests/cuda/emulator.

They are built there with AddressSanitizer, and run in a process of their own. A call is sent to it
as text and the bytes of its arrays. numpy has no bfloat16: its bits are sent as uint16. The
metadata of an array's type can have another name for it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "cuda" / "emulator"

Value: TypeAlias = np.ndarray | Sequence[np.ndarray] | float | bool | None


class EmulatedError(Exception):
    """What an implementation threw, or what the emulator has against it."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One kernel, or one call of cuBLAS."""

    device: int
    stream: int


def build(folder: Path, environment: Mapping[str, str]) -> None:
    """The programs `self_test` and `operators` in `folder`."""
    commands: Sequence[Sequence[str | Path]] = (
        [sys.executable, "-m", "codegen", "platforms", "--output-dir", folder],
        ["cmake", "-S", FOLDER, "-B", folder, "-G", "Ninja"],
        ["cmake", "--build", folder, "-j", "2"],
    )
    for command in commands:
        finished = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr


def owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory a view shows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Buffers:
    """The memory of the arrays of a call, each block once."""

    def __init__(self, arguments: Sequence[Value]) -> None:
        arrays = [array for argument in arguments for array in _arrays(argument)]
        self.owners = list({id(owner(array)): owner(array) for array in arrays}.values())

    def sizes(self) -> list[int]:
        return [array.nbytes for array in self.owners]

    def write(self, stream: IO[bytes]) -> None:
        for array in self.owners:
            stream.write(array.tobytes())

    def read(self, stream: IO[bytes]) -> None:
        for array in self.owners:
            received = np.frombuffer(stream.read(array.nbytes), array.dtype)
            array[...] = received.reshape(array.shape)

    def tensor(self, array: np.ndarray) -> list[object]:
        """As operators.cc reads it: buffer, offset in bytes, type, rank, shape, strides."""
        base = owner(array)
        index = next(i for i, candidate in enumerate(self.owners) if candidate is base)
        offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        named = (array.dtype.metadata or {}).get("name")
        name = named or ("bfloat16" if array.dtype == np.uint16 else array.dtype.name)
        strides = [stride // array.itemsize for stride in array.strides]
        return [index, offset if array.size else 0, name, array.ndim, *array.shape, *strides]

    def argument(self, value: Value) -> list[object]:
        if value is None:
            return ["none"]
        if isinstance(value, (bool, int, float)):
            return [type(value).__name__, value if isinstance(value, float) else int(value)]
        if isinstance(value, np.ndarray):
            return ["tensor", *self.tensor(value)]
        return ["tensors", len(value), *(word for array in value for word in self.tensor(array))]


def _arrays(argument: Value) -> Iterator[np.ndarray]:
    if isinstance(argument, np.ndarray):
        yield argument
    elif isinstance(argument, Sequence):
        yield from argument


class Emulated:
    """The process that runs the implementations, restarted after a crash."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "operators"
        self.runtime_calls: list[str] = []
        """The functions of the runtime that the last call used, without launches."""
        self._start()

    def _start(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([self.program], stdin=pipe, stdout=pipe, stderr=self.errors)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout

    def call(
        self,
        name: str,
        *arguments: Value,
        device: int = 0,
        stream: int = 0,
        order: int = 0,
        slot: int | None = 0,
    ) -> list[Launch]:
        """Runs a slot of an operator, which writes into the arrays, and says what it launched.

        With an `order` other than 0 blocks and threads run in a random one. Slot 9 only throws.
        """
        buffers = Buffers(arguments)
        chosen = -1 if slot is None else slot
        self._send([name, device, stream, order, chosen, len(buffers.owners), *buffers.sizes()])
        buffers.write(self.input)
        self._send([len(arguments), *(word for a in arguments for word in buffers.argument(a))])
        self.input.flush()
        kind, *words = self.output.readline().decode().split() or ["crash"]
        if kind == "crash":
            raise EmulatedError(self._crash())
        count = int(words[0])
        if kind == "error":
            raise EmulatedError(self.output.read(count).decode())
        buffers.read(self.output)
        self.runtime_calls = words[1 + 2 * count :]
        numbers = [int(word) for word in words[1 : 1 + 2 * count]]
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        return [Launch(device=device, stream=stream) for device, stream in pairs]

    def _send(self, words: Sequence[object]) -> None:
        self.input.write((" ".join(map(str, words)) + "\n").encode())

    def _crash(self) -> str:
        text = self.close()
        self._start()
        return text

    def close(self) -> str:
        """Ends the process; returns what it has written of errors."""
        self.process.communicate()
        with self.errors:
            self.errors.seek(0)
            return self.errors.read().decode()
