"""What a checkout knows of operators beside their schemas: slots, platforms, tested outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from codegen.aten import NativeFunctions
from codegen.devices import platforms
from codegen.native import Implementation, read_bases, read_registry

ROOT = Path(__file__).resolve().parents[2]
BASES = ROOT / "src" / "base"
CUDA_RULES = ROOT / "src" / "cmake" / "Cuda.cmake"


@dataclass(frozen=True, kw_only=True)
class TestOutcome:
    """The recorded outcomes of the tests of one overload, or of one hand-written operator."""

    platform: str
    simulated: bool
    slot: int
    overload: str  # ATen's full name, or the public name of a hand-written operator
    outcomes: Mapping[str, tuple[str, ...]]  # dtypes by outcome: passed, or a skip reason


@dataclass(frozen=True, kw_only=True)
class Place:
    """Implementations of an operator in one slot; ``source`` is None for generated ones."""

    slot: int
    devices: tuple[str, ...]  # platforms
    source: str | None


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What is known of operators beside their schemas. None: unknown outside of a checkout."""

    functions: NativeFunctions
    implementations: Sequence[Implementation] | None = None
    cuda_platforms: Sequence[str] = ()  # those that src/cuda is compiled for
    contracts: Sequence[TestOutcome] | None = None


def find_surroundings(functions: NativeFunctions) -> Surroundings:
    """Read the implementations and the contracts of this checkout, if it is one."""
    contracts = [ROOT / "tests" / each / "contracts" for each in ("ops", "simulated")]
    if not all(folder.is_dir() for folder in contracts):
        return Surroundings(functions=functions)
    sources = sorted((ROOT / "src").rglob("*.c[cu]"))
    registry = read_registry(
        [source.relative_to(ROOT) for source in sources],
        read_bases(BASES),
        "kNvidia",
        ROOT,
    )
    return Surroundings(
        functions=functions,
        implementations=registry.implementations,
        cuda_platforms=_cuda_platforms(),
        contracts=read_contracts(contracts),
    )


def _cuda_platforms() -> tuple[str, ...]:
    """The platforms for which src/cmake/Cuda.cmake has a compiler."""
    compared = re.findall(r'_ACCELERATOR STREQUAL "(\w+)"', CUDA_RULES.read_text())
    return tuple(each.name for each in platforms() if each.enumerator in compared)


def read_contracts(folders: Iterable[Path]) -> list[TestOutcome]:
    """Read the outcomes of operators in all contracts; of one platform's, in the first folder."""
    contracts: dict[str, dict[str, Any]] = {}
    for path in [path for folder in folders for path in sorted(folder.glob("*.yaml"))]:
        contract = _read_contract(path)
        contracts.setdefault(contract["platform"], contract)
    return [
        TestOutcome(
            platform=platform,
            simulated=contract.get("simulated", False),
            slot=int(slot.removeprefix("slot ")),
            overload=overload,
            outcomes={
                outcome: tuple(dtype for dtype, each in dtypes.items() if each == outcome)
                for outcome in dict.fromkeys(dtypes.values())
            },
        )
        for platform, contract in contracts.items()
        for slots in contract["operators"].values()
        for slot, overloads in slots.items()
        for overload, dtypes in overloads.items()
    ]


def _read_contract(path: Path) -> dict[str, Any]:
    """Read a contract on top of its base: an outcome for each function, slot, overload, dtype."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    contract: dict[str, Any] = yaml.load(path.read_bytes(), Loader=loader)  # noqa: S506
    classes = contract.get("dtypes") or {}
    base = contract.get("base")
    merged = _read_contract(path.parent / base)["operators"] if base else {}
    for function, slots in contract["operators"].items():
        if slots is None:
            merged.pop(function, None)
        for slot, overloads in (slots or {}).items():
            known = merged.setdefault(function, {}).setdefault(slot, {})
            if overloads is None:
                known.clear()
            for overload, outcomes in (overloads or {}).items():
                if outcomes is None:
                    known.pop(overload, None)
                    continue
                by_outcome = {"passed": outcomes} if isinstance(outcomes, str) else outcomes
                known[overload] = known.get(overload, {}) | {
                    dtype: outcome
                    for outcome, words in by_outcome.items()
                    for word in words.split()
                    for dtype in classes.get(word, word).split()
                }
    return {**contract, "operators": merged}
