"""Options, device set-up and the closing count of the operator suite.

Runs against the installed ``infini.ops``; samples and helpers lie beside this file.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tally import coverage_lines, report_properties

import infini.ops
import torch

# torch's device type -> the plug-in that brings it, where torch does not have it itself.
DEVICES = {
    "cpu": None,
    "cuda": None,
    "npu": "torch_npu",
    "mlu": "torch_mlu",
    "musa": "torch_musa",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("infini.ops")
    group.addoption("--device", choices=sorted(DEVICES), default="cpu", help="torch device type")
    group.addoption(
        "--slot",
        type=int,
        action="append",
        choices=range(10),
        help="run the operator tests of this implementation slot only; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    _prepare(config.getoption("device"))
    # The operands are small and the suite runs one process per core.
    torch.set_num_threads(1)
    # NNPACK's operators fail in a process where nobody has asked for it: asking initialises it.
    torch.backends.nnpack.is_available()


def _prepare(device: str) -> None:
    """Imports the device's plug-in; stops where torch or the library cannot use the device."""
    try:
        plugin = DEVICES[device]
        if plugin is not None:
            importlib.import_module(plugin)
        torch.empty(0, device=device)
        infini.ops.Abs.active_implementation_indices(device)
    except Exception as error:
        raise pytest.UsageError(f"--device {device} cannot be used here: {error}") from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("slot")
    if wanted is None:
        return
    deselected = [item for item in items if _slot(item) not in (None, *wanted)]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if _slot(item) in (None, *wanted)]


def _slot(item: pytest.Item) -> int | None:
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("case") if callspec else None
    return getattr(case, "slot", None)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """The device type that operands are made on."""
    name: str = request.config.getoption("device")
    return name


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says how much of what is active was executed, slot by slot."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    for line in coverage_lines(report_properties(reports)):
        terminalreporter.write_line(line)
