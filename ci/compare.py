"""What ``python -m ci compare`` compares: runs of the store and contract files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.contract import Contract, load_contract
from ci.analysis.suite import Suite, suite_of
from ci.errors import UsageError
from ci.results import PlatformResult, RunResult, title

if TYPE_CHECKING:
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two that are compared."""

    name: str
    suite: Suite
    platform: str
    simulated: bool = False

    @property
    def title(self) -> str:
        return title(self.name, simulated=self.simulated)


def contract_side(name: str, contract: Contract) -> Side:
    return Side(
        name=name,
        suite=contract.suite,
        platform=contract.platform,
        simulated=contract.simulated,
    )


@dataclass(frozen=True, kw_only=True)
class _Reference:
    """``RUN``, ``RUN/PLATFORM`` or a contract file, as it was named."""

    path: Path | None
    run: str
    platform: str | None


def sides(open_store: Callable[[], Store], base: str, head: str) -> tuple[Side, Side]:
    """Load what two references name; a platform that one leaves out is the other's.

    The store is opened only where a run is named.
    """
    first, second = _reference(base), _reference(head)
    return (
        _side(open_store, first, second.platform),
        _side(open_store, second, first.platform),
    )


def _reference(text: str) -> _Reference:
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise UsageError(f"{path}: no such contract")
        return _Reference(path=path, run="", platform=path.stem)
    run, _, platform = text.rstrip("/").rpartition("/")
    if not run:
        run, platform = platform, ""
    return _Reference(path=None, run=run, platform=platform or None)


def _side(open_store: Callable[[], Store], reference: _Reference, other: str | None) -> Side:
    if reference.path is not None:
        return contract_side(str(reference.path), load_contract(reference.path))
    with open_store() as store:
        return _run_side(store, reference, other)


def _run_side(store: Store, reference: _Reference, other: str | None) -> Side:
    run = store.load(reference.run)
    result = _platform(run, reference.platform, other)
    name = f"{run.run_id}/{result.platform}"
    if result.pytest is None:
        raise UsageError(f"{name} has no tests: {result.verdict.evidence[0].text}")
    complete = "" if result.pytest.summary else " (its tests did not get to their end)"
    suite = suite_of(store.tests(run.run_id, result.platform))
    return Side(
        name=name + complete,
        suite=suite,
        platform=result.platform,
        simulated=result.simulated,
    )


def _platform(run: RunResult, wanted: str | None, other: str | None) -> PlatformResult:
    """The platform that is named, or the one that can be meant."""
    if wanted is None and len(run.platforms) == 1:
        return run.platforms[0]
    if name := wanted or other:
        return run.platform(name)
    names = [result.platform for result in run.platforms]
    message = f"run {run.run_id} has {', '.join(names)}: name one"
    raise UsageError(message, remedy=f"{run.run_id}/{names[0]}")
