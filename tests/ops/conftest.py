"""Options, device set-up, guards and the closing count of the operator suite.

Runs against the installed ``infini.ops``; samples and helpers lie beside this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import guards
import pytest
import tally
from platforms import DEVICES, PLATFORMS, default_platform, load_plugin
from properties import Record

import infini.ops
import torch

SUITE = Path(__file__).parent

# What `python -m ci run` sets for every stage.
PLATFORM, DEVICE = "INFINI_CI_PLATFORM", "INFINI_CI_TORCH_DEVICE"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("infini.ops")
    group.addoption(
        "--platform",
        choices=sorted(PLATFORMS),
        help=f"whose hardware it is; default ${PLATFORM}, or what the library was built for",
    )
    group.addoption(
        "--device",
        choices=DEVICES,
        help=f"torch device type; default ${DEVICE}, or the platform's, or cpu",
    )
    group.addoption(
        "--slot",
        type=int,
        action="append",
        choices=range(10),
        help="run the operator tests of this implementation slot only; may be repeated",
    )
    guards.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    guards.use_a_worker(config)


def pytest_configure(config: pytest.Config) -> None:
    _choose_target(config.option)
    _prepare(config.option.device)
    guards.register(
        config,
        entries=guards.platform_quarantine(
            SUITE / "quarantine.yaml", config.option.platform, PLATFORMS
        ),
        folder=SUITE,
        properties={"platform": config.option.platform},
        device_answers=partial(_answers, config.option.device),
    )
    config.pluginmanager.register(tally)
    # The operands are small and the suite runs one process per core.
    torch.set_num_threads(1)
    # NNPACK's operators fail in a process where nobody has asked for it: asking initialises it.
    torch.backends.nnpack.is_available()


def _choose_target(option: Any) -> None:
    """Fills in what the command line leaves open."""
    option.platform = option.platform or _from_environment(PLATFORM, sorted(PLATFORMS))
    option.device = option.device or _from_environment(DEVICE, DEVICES)
    if option.device is None:
        option.device = PLATFORMS[option.platform].device if option.platform else "cpu"
    option.platform = option.platform or default_platform(option.device)


def _from_environment(name: str, known: Collection[str]) -> str | None:
    value = os.environ.get(name) or None
    if value is not None and value not in known:
        raise pytest.UsageError(f"${name} is {value!r}; expected one of {', '.join(known)}")
    return value


def _answers(device: str) -> bool:
    """Says whether a device still computes; a CUDA device never does after a bad access."""
    if device == "cpu":
        return True
    try:
        return bool(torch.tensor([1, 2]).to(device).cpu().tolist() == [1, 2])
    except Exception:
        # Whatever it raises: torch, its plug-ins and the drivers have no error in common.
        return False


def _prepare(device: str) -> None:
    """Imports the device's plug-in; stops where torch or the library cannot use the device."""
    try:
        load_plugin(device)
        torch.empty(0, device=device)
        infini.ops.Abs.active_implementation_indices(device)
    except Exception as error:
        raise pytest.UsageError(
            f"device {device} cannot be used here: {error}. It was asked for by the first of "
            f"--device, ${DEVICE}, --platform and ${PLATFORM} that is set"
        ) from error


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


@pytest.fixture
def record(record_property: Callable[[str, object], None], pytestconfig: pytest.Config) -> Record:
    """Writes what every operator test records."""
    option = pytestconfig.option
    return Record(property=record_property, device=option.device, platform=option.platform)
