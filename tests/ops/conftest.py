"""Options, device set-up, guards and the closing count of the operator suite.

Runs against the installed ``infini.ops``; samples and helpers lie beside this file.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import guards
import narrowing
import pytest
import tally
from evidence import is_absent, is_simulated
from platforms import DEVICES, PLATFORMS, SIMULATED_DEVICES
from processor import this_processor
from properties import Record, origin
from target import DEVICE, PLATFORM, SIMULATED, answers, choose_target, prepare
from torch_alone import death_of_torch

import torch

SUITE = Path(__file__).parent

# Vendors' images lack hypothesis. The contract of the CPU notices if the tests vanish there.
collect_ignore = [] if find_spec("hypothesis") else ["test_drawn_shapes.py"]

# `assert_close` would import torch.distributed.tensor, and sympy for it: 1 CPU-second in each
# process, 5 where nothing is compiled yet. No test has such tensors.
torch.testing._comparison._HAS_DTENSOR = False


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("infini.ops")
    group.addoption(
        "--platform",
        choices=sorted(PLATFORMS),
        help=f"platform to test; default ${PLATFORM}, or the one that the library was built for",
    )
    group.addoption(
        "--device",
        choices=DEVICES,
        help=f"torch device type; default ${DEVICE}, or that of --platform, or cpu",
    )
    group.addoption(
        "--simulated",
        action="store_true",
        help=f"run without the vendor's hardware: on a simulated {', '.join(SIMULATED_DEVICES)}; "
        "for other devices, run the tests that need no device, and skip the others with the "
        f"reason 'no device'; default ${SIMULATED}, 0 or 1",
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
    option = config.option
    choose_target(option)
    prepare(option.device, option.platform, simulated=option.simulated)
    entries = guards.platform_quarantine(SUITE / "quarantine.yaml", option.platform, PLATFORMS)
    guards.register(
        config,
        # The entries are defects of a vendor, and do not occur without the vendor's hardware.
        entries=() if origin(option.device) else entries,
        folder=SUITE,
        properties={"platform": option.platform, **origin(option.device)},
        device_answers=partial(answers, option.device),
        death_without_library=partial(
            death_of_torch,
            platform=option.platform,
            simulated=option.simulated,
            limit_s=option.hang_after,
        ),
    )
    config.pluginmanager.register(narrowing)
    config.pluginmanager.register(tally)


def pytest_report_header(config: pytest.Config) -> str:
    device, platform = config.option.device, config.option.platform
    if is_simulated(device):
        return f"operators: {device} (simulated) for {platform}; no vendor hardware is used"
    if is_absent(device):
        return f"operators: {device} (no device) for {platform}, compiled only"
    return f"operators: {device} of {platform}, on {this_processor()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = config.getoption("slot")
    # Without devices, pytest makes a test that skips; drop it, since it checks nothing.
    items[:] = [item for item in items if "[NOTSET" not in item.name]
    if wanted is None:
        return
    deselected = [item for item in items if _slot(item) not in (None, *wanted)]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if _slot(item) in (None, *wanted)]


_PROCESSOR_RECORDED = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keeps the tests, which live until the end, out of searches for garbage: 5 % of the suite."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Makes the first test of every process record the features of the processor."""
    if not item.config.stash.get(_PROCESSOR_RECORDED, False):
        item.config.stash[_PROCESSOR_RECORDED] = True
        item.user_properties.append(("processor", this_processor().record()))


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
    """The writer of the properties that every operator test records."""
    option = pytestconfig.option
    return Record(property=record_property, device=option.device, platform=option.platform)
