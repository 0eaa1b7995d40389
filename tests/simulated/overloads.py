"""Calls overloads of torch on a simulated device, with arguments that the CPU takes.

``python overloads.py FOLDER``: FOLDER has the package ``simulated_device``; the standard input has
the names of the overloads, a line each. Prints a JSON object: for each overload, how its calls
ended. With ``--any-arguments``, the CPU is not asked: an overload without a kernel refuses any.

Most overloads have no samples in OpInfo, so arguments are drawn: those of an overload are the same
in each run. Each overload is called in a process of its own, because the CPU's kernels die of some
arguments, and kernels of torch that look at memory of the device die here, as on hardware.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils._pytree import tree_leaves, tree_map_only

import torch
from tests.simulated.opinfo import NAME, Draws, on_cpu, same

TRIES = 200  # drawn calls per overload; most are refused by the CPU
CALLS = 4  # calls on the device per overload
DEATHS = 20  # of the CPU, per overload
LIMIT_S = 30  # of one process
UNINITIALIZED = re.compile("empty|resize")  # results are what was in the memory


def _ramp(*shape: int) -> torch.Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) / 10


TENSORS: tuple[Callable[[], torch.Tensor], ...] = (
    lambda: _ramp(),
    lambda: _ramp(4),
    lambda: _ramp(0),
    lambda: _ramp(4, 4),
    lambda: torch.eye(4),
    lambda: _ramp(2, 4, 4),
    lambda: _ramp(1, 4, 4, 4),
    lambda: _ramp(1, 4, 4, 2),
    lambda: _ramp(1, 4, 4, 4, 4),
    lambda: _ramp(4).double(),
    lambda: _ramp(4, 4).half(),
    lambda: torch.tensor([1 + 2j, 3j, 2, 1]),
    lambda: torch.tensor([[1 + 2j, 3j], [2, 1]]),
    lambda: torch.tensor(1),
    lambda: torch.tensor([0, 1, 2, 3]),
    lambda: torch.arange(16).reshape(4, 4) % 4,
    lambda: torch.tensor([0, 1, 2, 3], dtype=torch.int32),
    lambda: torch.tensor([1, 2, 3, 4], dtype=torch.uint8),
    lambda: torch.ones(4, dtype=torch.int8),
    lambda: torch.ones(4, 4, dtype=torch.bool),
    lambda: torch.arange(4 * 30).reshape(4, 30) % 2,
    lambda: torch.arange(4 * 30 * 30).reshape(4, 30, 30) % 2,
)
LISTS = [[], [0], [1], [2], [4], [0, 0], [0, 1], [1, 1], [2, 2], [4, 4], [4, 3]]
LISTS += [[0, 0, 0], [1, 1, 1], [2, 2, 2], [1, 4, 4, 4]]
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, 2, 3, 4, -1],
    "SymInt": [0, 1, 2, 3, 4, -1],
    "float": [0.0, 0.5, 1.0, 2.0],
    "number": [0, 1, 2, 4, 0.5],
    "bool": [False, False, True],
    "List[int]": LISTS,
    "List[SymInt]": LISTS,
    "List[float]": [[1.0], [2.0, 2.0], [1.0, 1.0, 1.0]],
    "List[bool]": [[True], [True, True], [True, True, True]],
    "List[number]": [[1, 1]],
    "str": ["linear", "none", "ij", "fro", "L", "reflect", "sum", "mean", "right"],
    "ScalarType": [torch.float32, torch.float32, torch.int64, torch.float64],
    "Layout": [torch.strided],
    "MemoryFormat": [torch.contiguous_format],
    "Generator": [None],
}


class _Drawn:
    """A tensor to make on the device, by its place in ``TENSORS``; or the device itself."""

    def __init__(self, place: int | None = None) -> None:
        self.place = place

    def on(self, device: str) -> Any:
        return torch.device(device) if self.place is None else TENSORS[self.place]().to(device)

    def __repr__(self) -> str:
        return "device" if self.place is None else f"tensor {self.place}"


# For those that take few arguments: drawing finds none, or only those that do not matter.
GIVEN: dict[str, dict[str, Any]] = {
    "_reshape_from_tensor": {"self": _Drawn(2), "shape": _Drawn(14)},
    "_sobol_engine_scramble_": {"self": _Drawn(20), "ltm": _Drawn(21), "dimension": 4},
    "conj_physical_": {"self": _Drawn(11)},
    "mkldnn_convolution": {
        "self": _Drawn(6),
        "weight": _Drawn(6),
        "bias": None,
        "padding": [0, 0],
        "stride": [1, 1],
        "dilation": [1, 1],
        "groups": 1,
    },
}


def draw(schema: Any, source: random.Random) -> dict[str, Any] | None:
    """Draw arguments by name; None if a type is not known, or none of them selects the device."""
    usual = source.randrange(len(TENSORS))  # many operators take tensors of one shape

    def tensor() -> _Drawn:
        return _Drawn(usual if source.random() < 0.6 else source.randrange(len(TENSORS)))

    def value(kind: str) -> Any:
        if kind.startswith("Optional["):
            return None if source.random() < 0.6 else value(kind[9:-1])
        if kind == "Tensor":
            return tensor()
        if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            return [_Drawn(usual)] * source.choice([1, 2, 2, 3])
        return _Drawn() if kind == "Device" else source.choice(VALUES[kind])

    arguments: dict[str, Any] = {}
    for each in schema.arguments:
        if each.name == "device":
            arguments["device"] = _Drawn()
        elif each.name == "pin_memory" or (each.has_default_value() and source.random() < 0.7):
            continue  # of memory of the host
        elif (kind := str(each.type)).startswith(("Storage", "Stream")):
            return None
        elif kind == "List[bool]" and each.N is not None:
            arguments[each.name] = [True] * each.N
        else:
            arguments[each.name] = value(kind)
    return arguments if "device" in arguments or "tensor" in repr(arguments) else None


def on(device: str, value: Any) -> Any:
    if isinstance(value, list):
        return [on(device, each) for each in value]
    return value.on(device) if isinstance(value, _Drawn) else value


def call(overload: Any, arguments: dict[str, Any], device: str) -> list[Any]:
    """The results. What a kernel does not write, in modes that do not exist, is NaN each time."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    values = {name: on(device, value) for name, value in arguments.items()}
    torch.manual_seed(0)
    return list(tree_leaves(overload(**values)))


def find(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def repeats(overload: Any, arguments: dict[str, Any], expected: list[Any]) -> bool:
    """Whether the values of the results are determined by the arguments."""
    with Draws() as draws:
        again = call(overload, arguments, "cpu")
    try:
        same(again, expected)
    except AssertionError:
        return False
    return not (draws.seen or UNINITIALIZED.search(overload.name()))


def call_all(name: str, first: int, report: Callable[[dict[str, Any]], None]) -> None:
    """Report before each call where it runs, and after each on the device how it ended."""
    overload = find(name)
    source = random.Random(name)  # noqa: S311 - the same in each run
    calls = 0
    for place in range(TRIES):
        drawn = draw(overload._schema, source)
        arguments = GIVEN.get(name, drawn) if place == 0 else drawn
        if arguments is None or place < first:
            continue
        report({"on": "cpu", "place": place})
        try:
            expected = call(overload, arguments, "cpu")
            has_values = repeats(overload, arguments, expected)
        except Exception:  # noqa: S112 - the CPU refuses most
            continue
        report({"on": NAME, "arguments": repr(arguments)})
        try:
            results = tree_map_only(torch.Tensor, on_cpu, call(overload, arguments, NAME))
            same(results, expected, values=False)
            if has_values:
                same(results, expected)
            end = ""
        except Exception as error:
            end = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        report({"on": "", "end": end, "arguments": repr(arguments)})
        calls += 1
        if calls == CALLS:
            return


def call_with_any(name: str, report: Callable[[dict[str, Any]], None]) -> None:
    """The same without asking the CPU, until a call works, or ends by the lack of a kernel."""
    overload = find(name)
    source = random.Random(name)  # noqa: S311 - the same in each run
    for _ in range(TRIES):
        arguments = draw(overload._schema, source)
        if arguments is None:
            continue
        report({"on": NAME})
        end = ""
        try:
            call(overload, arguments, NAME)
        except Exception as error:
            end = f"{type(error).__name__}: {error}"
        report({"on": "", "end": end})
        if not end or end.startswith(NotImplementedError.__name__):
            break


def send(file: int, line: dict[str, Any]) -> None:
    os.write(file, json.dumps(line).encode() + b"\n")


def in_another_process(
    calls: Callable[[Callable[[dict[str, Any]], None]], None],
) -> tuple[list[dict[str, Any]], str]:
    """What ``calls`` reports, and the signal of which its process died."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            calls(partial(send, sender))
        finally:
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, encoding="utf-8") as lines:
        reported = [json.loads(line) for line in lines]
    _, status = os.waitpid(child, 0)
    died = os.WIFSIGNALED(status)
    return reported, signal.Signals(os.WTERMSIG(status)).name if died else ""


def run(name: str) -> dict[str, Any]:
    """How many calls of an overload worked on the device, and the first that did not."""
    worked = first = 0
    for _ in range(DEATHS):
        reported, death = in_another_process(partial(call_all, name, first))
        ends = [each for each in reported if "end" in each]
        worked += sum(not each["end"] for each in ends)
        failed = next((each for each in ends if each["end"]), None)
        if death and reported and reported[-1]["on"] == NAME:
            failed = failed or {"end": death, "arguments": reported[-1]["arguments"]}
        if failed:
            return {"worked": worked, "failed": failed["end"], "with": failed["arguments"]}
        if not death or not reported or worked >= CALLS:
            break
        first = max(each["place"] for each in reported if "place" in each) + 1
    return {"worked": worked}


def run_with_any(name: str) -> dict[str, Any]:
    """How the last call of an overload ended, with any arguments; {} if none could be drawn."""
    reported, death = in_another_process(partial(call_with_any, name))
    return {"end": death or reported[-1]["end"]} if reported else {}


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import simulated_device

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    simulated_device.load(NAME)
    with Draws():  # imports modules, which each process would import again
        torch.ones(1) + 1
    same([torch.ones(1)], [torch.ones(1)])
    how = run_with_any if "--any-arguments" in sys.argv else run
    print(json.dumps({name: how(name) for name in sys.stdin.read().split()}))
