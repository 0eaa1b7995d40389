"""Calls of the CPU's operators in a process of another processor, by tests/cpu/calls_program.cc.

A call is sent to it as text and the bytes of the tensors' memory, which come back.
"""

from __future__ import annotations

import ast
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


class CallError(Exception):
    """What the operator threw, or how its process ended."""


class _Memory:
    """The memory of the tensors of a call, each block once."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage()
            for tensor in _tensors(arguments)
        }
        self._places = {address: number for number, address in enumerate(storages)}
        self._blocks = [
            torch.empty(0, dtype=torch.uint8).set_(storage).numpy() for storage in storages.values()
        ]

    def sizes(self) -> list[int]:
        return [block.nbytes for block in self._blocks]

    def content(self) -> bytes:
        return b"".join(block.tobytes() for block in self._blocks)

    def replace(self, memory: bytes) -> None:
        for block in self._blocks:
            block.data[:] = memory[: block.nbytes]
            memory = memory[block.nbytes :]

    def words(self, value: Any) -> list[object]:
        """An argument as calls.h reads it."""
        if value is None:
            return ["none"]
        if isinstance(value, torch.Tensor):
            return ["tensor", *self._tensor(value)]
        if isinstance(value, list):
            return ["tensors", len(value), *(word for each in value for word in self._tensor(each))]
        return [type(value).__name__, value if isinstance(value, float) else int(value)]

    def _tensor(self, tensor: torch.Tensor) -> list[object]:
        place = self._places[tensor.untyped_storage().data_ptr()]
        offset = tensor.storage_offset() * tensor.element_size()
        dtype = str(tensor.dtype).removeprefix("torch.")
        return [place, offset, dtype, tensor.dim(), *tensor.shape, *tensor.stride()]


def _tensors(arguments: Sequence[Any]) -> Iterator[torch.Tensor]:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, list):
            yield from argument


class Caller:
    """The process that runs the calls; ``command`` starts it."""

    def __init__(self, command: Sequence[str | Path], metadata: Path) -> None:
        operators = json.loads(metadata.read_text())["ops"]
        self._parameters = {each["name"]: each["params"] for each in operators}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._errors)

    def names(self) -> set[str]:
        return set(self._parameters)

    def call(self, name: str, arguments: dict[str, Any], outs: Mapping[str, torch.Tensor]) -> None:
        """Runs slot 0, which writes into ``outs``."""
        given = {**arguments, **outs}
        ordered = [
            given[each["name"]] if each["name"] in given else ast.literal_eval(each["default"])
            for each in self._parameters[name]
        ]
        memory = _Memory(ordered)
        words = [name, len(memory.sizes()), *memory.sizes()]
        rest = [len(ordered), *(word for value in ordered for word in memory.words(value))]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(_line(words) + memory.content() + _line(rest))
        stdin.flush()
        kind, *size = stdout.readline().decode().split() or ["crash"]
        if kind == "crash":
            raise CallError(self.close())
        if kind == "error":
            raise CallError(stdout.read(int(size[0])).decode())
        memory.replace(stdout.read(sum(memory.sizes())))

    def close(self) -> str:
        """Ends the process; returns what it has written of errors."""
        self._process.communicate()
        with self._errors:
            self._errors.seek(0)
            return f"exit code {self._process.returncode}: {self._errors.read().decode()}"


def _line(words: Sequence[object]) -> bytes:
    return (" ".join(map(str, words)) + "\n").encode()
