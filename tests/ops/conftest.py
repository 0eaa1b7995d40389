"""Options, device set-up and the closing count of the operator suite.

Runs against the installed ``infini.ops``; samples and helpers lie beside this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from platforms import DEVICES, PLATFORMS, default_platform, load_plugin
from properties import Record
from tally import closing_lines, report_properties

import infini.ops
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("infini.ops")
    group.addoption(
        "--device",
        choices=DEVICES,
        default=os.environ.get("INFINI_CI_TORCH_DEVICE", "cpu"),
        help="torch device type",
    )
    group.addoption(
        "--platform",
        choices=sorted(PLATFORMS),
        default=os.environ.get("INFINI_CI_PLATFORM"),
        help="whose hardware the device is; by default what the library was built for",
    )
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
        load_plugin(device)
        torch.empty(0, device=device)
        infini.ops.Abs.active_implementation_indices(device)
    except Exception as error:
        raise pytest.UsageError(f"--device {device} cannot be used here: {error}") from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("slot")
    # Without cases, pytest makes one test that skips: there is nothing that it could say.
    items[:] = [item for item in items if not item.name.endswith("[NOTSET]")]
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


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, device: str) -> str:
    """The platform that was asked for."""
    return request.config.getoption("platform") or default_platform(device)


@pytest.fixture
def record(record_property: Callable[[str, object], None], device: str, platform: str) -> Record:
    """Writes what every operator test records."""
    return Record(property=record_property, device=device, platform=platform)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    """Says how much of what is active was executed, after everything but pytest's last line."""
    yield
    if terminalreporter.config.option.collectonly:
        return
    reports = [report for group in terminalreporter.stats.values() for report in group]
    for line in closing_lines(report_properties(reports)):
        terminalreporter.write_line(line)
