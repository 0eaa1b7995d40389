"""Runs faults in groups."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from ci.engines.select import select_engine
from ci.model.plan import EngineKind, EnginePlan
from ci.model.platforms import PLATFORMS
from ci.protocol.events import Event
from tests.e2e.plans import make_run_plan
from tools.faults.checking import carry_out
from tools.faults.model import Fault, batches
from tools.faults.own_engine import end_own_engine
from tools.faults.running import FaultRun
from tools.faults.suite import FAULTS, selection

REQUIREMENTS = "pytest\npytest-reportlog\npytest-xdist\nsetuptools>=77\n"
Differences = dict[str, list[str]]  # by the name of the fault


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--selection", action="store_true", help="one fault of each kind")


def pytest_configure() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it, which all processes inherit


def runs(config: pytest.Config) -> list[list[Fault]]:
    """Return the faults that are done together in one run."""
    faults = selection() if config.option.selection else list(FAULTS)
    return batches(faults, len(PLATFORMS))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "fault" in metafunc.fixturenames:
        faults = [pytest.param(it, id=it.name) for batch in runs(metafunc.config) for it in batch]
        metafunc.parametrize("fault", faults)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all faults of one run to one process of pytest.

    ``--dist loadgroup`` of pytest-xdist 3.8 does not divide by groups with pytest 9.2.
    """
    numbers = {fault.name: str(n) for n, batch in enumerate(runs(config)) for fault in batch}

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = lambda nodeid: numbers.get(_parameter(nodeid), nodeid)
    return scheduling


def _parameter(nodeid: str) -> str:
    return nodeid.partition("[")[2].removesuffix("]")


def pytest_sessionfinish() -> None:
    end_own_engine()


class Silent:
    """Observes an engine without showing anything."""

    def event(self, event: Event) -> None:
        """Ignore an event."""


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image that all faults start from: pytest and its plugins on the offline base."""
    engine = select_engine(EnginePlan(name="docker", kind=EngineKind.DOCKER))
    folder = tmp_path_factory.mktemp("image")
    plan = make_run_plan(folder, run_id="faults", image_requirements=REQUIREMENTS)
    try:
        return engine.prepare(plan, Silent()).reference
    finally:
        engine.close()


@pytest.fixture(scope="session")
def differences(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, image: str
) -> Callable[[Fault], list[str]]:
    """Return what is not as expected of a fault; the faults of one run are done together."""
    known: Differences = {}
    items: list[Any] = request.session.items
    chosen = {item.callspec.params["fault"].name for item in items if hasattr(item, "callspec")}

    def differences_of(fault: Fault) -> list[str]:
        if fault.name not in known:
            [batch] = [batch for batch in runs(request.config) if fault in batch]
            together = [each for each in batch if each.name in chosen]
            known.update(_carry_out(tmp_path_factory.mktemp("run"), together, image))
        return known[fault.name]

    return differences_of


def _carry_out(folder: Path, faults: list[Fault], image: str) -> Differences:
    run = FaultRun(folder, faults, image)
    try:
        if faults[0].around is None:
            found = carry_out(run)
        else:
            with faults[0].around(run) as run.setting:
                found = carry_out(run)
    except AssertionError as error:
        found = {platform: [str(error)] for platform in run.platforms}
    finally:
        run.end()
    return {fault.name: found[platform] for platform, fault in run.platforms.items()}
