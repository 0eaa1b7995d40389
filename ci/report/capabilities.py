"""What platforms execute and pass, as a document for other programs.

``op_allowlist`` and ``op_overrides`` are the material for the arguments of these names of torch's
``PrivateUse1TestBase.set_test_configs``, which lets a device run torch's own operator tests:
https://docs.pytorch.org/docs/main/accelerator/testing.html. Torch expects full names of OpInfo
entries there, and objects. Only torch knows which ATen operators an entry calls, so the document
names ATen operators, and ``infini.codegen.device_tests.reused_tests`` makes the arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ci.facts.contract import Contract
from ci.facts.operator_pairs import OperatorPairs, executed_pairs, pairs_of
from ci.facts.suite import Outcomes
from ci.model.outcomes import NOT_IN_TORCH, TORCH_DECIDES, UNSUPPORTED, VENDOR_DEFECT
from ci.model.platforms import PLATFORMS
from ci.model.results import PlatformResult, RunResult, title

SCHEMA_VERSION = 1
TORCH_SLOT = 8  # the generated PyTorch backend: only here does torch dispatch to the device
# Skip reasons for which a call would not work. All others are about the test: it has no sample.
LACKING = (*UNSUPPORTED, NOT_IN_TORCH, *TORCH_DECIDES)
FAILS = "failed"
NO_DTYPE = "nosample"  # of the test of an overload without samples

Dtypes = tuple[str, ...]


class _CapabilityModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OverloadCapability(_CapabilityModel):
    """The dtypes of an overload on one slot; each is in one field."""

    passed: Dtypes = ()
    """Executed, and every test passed."""
    failed: Dtypes = ()
    """A test failed."""
    not_executed: Mapping[str, str] = Field(default_factory=dict)
    """The reason by dtype, where all tests skipped; ``nosample``: the overload has no sample."""


class OpOverride(_CapabilityModel):
    """Dtypes that torch's tests of an operator skip."""

    dtypes: Dtypes
    reason: str
    """A skip reason of the suite, or ``failed``."""


class PlatformCapabilities(_CapabilityModel):
    """What a platform executes and passes, and how that is known."""

    platform: str
    label: str
    simulated: bool
    device: str | None
    """torch's name of the device of the tests; null if there are no operator tests."""
    torch: str | None
    run_id: str | None = None
    """The run that showed it; null: the contract promises it."""
    commit: str | None = None
    dirty: bool = False
    started_at: datetime | None = None
    slots: Mapping[int, Mapping[str, OverloadCapability]]
    """Overloads by slot."""
    op_allowlist: tuple[str, ...]
    """ATen operators, without overload, of which torch's backend passes at least one dtype."""
    op_overrides: Mapping[str, tuple[OpOverride, ...]]
    """The other dtypes of these operators, where a test shows why not."""


class CapabilityDocument(_CapabilityModel):
    """The whole document."""

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    project: str | None
    """The project of the runs; null: the document is of contracts."""
    platforms: tuple[PlatformCapabilities, ...]

    def to_json(self) -> str:
        # Escapes alone: a terminal obeys some characters outside of ASCII.
        return self.model_dump_json(indent=1, ensure_ascii=True) + "\n"


def from_run(run: RunResult, result: PlatformResult, outcomes: Outcomes) -> PlatformCapabilities:
    """What a platform did in a run."""
    torch = result.facts("packages").get("torch")
    return _from_pairs(
        executed_pairs(outcomes),
        platform=result.platform,
        label=result.label,
        simulated=result.simulated,
        device=outcomes.device,
        torch=torch if isinstance(torch, str) else None,
        run_id=run.run_id,
        commit=run.commit,
        dirty=run.dirty,
        started_at=run.started_at,
    )


def from_contract(contract: Contract) -> PlatformCapabilities:
    """What the contract of a platform promises; it has no failures."""
    name = contract.platform
    label = PLATFORMS[name].label if name in PLATFORMS else name
    return _from_pairs(
        pairs_of(contract.suite.operators),
        platform=name,
        label=title(label, name, simulated=contract.simulated),
        simulated=contract.simulated,
        device=contract.suite.device,
        torch=contract.torch,
    )


def _from_pairs(pairs: OperatorPairs, **facts: Any) -> PlatformCapabilities:
    names, overrides = _of_torch(pairs)
    slots = _slots(pairs)
    return PlatformCapabilities(slots=slots, op_allowlist=names, op_overrides=overrides, **facts)


def operator_name(overload: str) -> str:
    """``add`` of ``add.out``."""
    return overload.partition(".")[0]


def _slots(pairs: OperatorPairs) -> dict[int, dict[str, OverloadCapability]]:
    passed, failed = _dtypes(pairs.passed), _dtypes(pairs.failed)
    idle: dict[tuple[int, str], dict[str, str]] = defaultdict(dict)
    for (overload, dtype, slot), state in sorted(pairs.idle.items()):
        idle[slot, overload][dtype] = str(state)
    slots: dict[int, dict[str, OverloadCapability]] = {}
    for slot, overload in sorted({*passed, *failed, *idle}):
        place = slot, overload
        slots.setdefault(slot, {})[overload] = OverloadCapability(
            passed=passed.get(place, ()),
            failed=failed.get(place, ()),
            not_executed=idle.get(place, {}),
        )
    return slots


def _dtypes(pairs: Iterable[tuple[str, str, int]]) -> dict[tuple[int, str], Dtypes]:
    found: dict[tuple[int, str], list[str]] = defaultdict(list)
    for overload, dtype, slot in sorted(pairs):
        found[slot, overload].append(dtype)
    return {place: tuple(dtypes) for place, dtypes in found.items()}


def _of_torch(pairs: OperatorPairs) -> tuple[tuple[str, ...], dict[str, tuple[OpOverride, ...]]]:
    """Return ``op_allowlist`` and ``op_overrides``.

    A dtype of an operator is usable if it passed in an overload, and failed in none.
    """
    passed, failed = (
        {(operator_name(it.overload), it.dtype) for it in some if it.slot == TORCH_SLOT}
        for some in (pairs.passed, pairs.failed)
    )
    usable = passed - failed
    names = tuple(sorted({operator for operator, _ in usable}))
    reasons = {
        (operator_name(overload), dtype): state.reason
        for (overload, dtype, slot), state in pairs.idle.items()
        if slot == TORCH_SLOT and dtype != NO_DTYPE and state.reason and _is_lacking(state.reason)
    } | dict.fromkeys(failed, FAILS)
    found: dict[str, dict[str, list[str]]] = {name: defaultdict(list) for name in names}
    for (operator, dtype), reason in sorted(reasons.items()):
        if operator in found and (operator, dtype) not in usable:
            found[operator][reason].append(dtype)
    return names, {
        operator: tuple(OpOverride(dtypes=tuple(some), reason=it) for it, some in by_reason.items())
        for operator, by_reason in found.items()
        if by_reason
    }


def _is_lacking(reason: str) -> bool:
    return reason in LACKING or reason.startswith(f"{VENDOR_DEFECT} ")


def of_platforms(
    platforms: Sequence[PlatformCapabilities], project: str | None = None
) -> CapabilityDocument:
    """Put platforms into one document, in the order of the table."""
    order = {name: place for place, name in enumerate(PLATFORMS)}
    ordered = sorted(platforms, key=lambda it: (order.get(it.platform, len(order)), it.platform))
    return CapabilityDocument(project=project, platforms=tuple(ordered))
