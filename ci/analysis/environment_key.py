"""The environment key: times of runs are compared only where it is the same.

It is made of all that changes how long the same sources take: the machine, the toolchain, the
engine, what the compiler cache had, and what was selected to be built.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ci.results import PlatformResult, title

UNKNOWN = "unknown"
GIB = 1 << 30
HALF = 0.5  # of the compilations: what a cache had is one of two bands


@dataclass(frozen=True, kw_only=True)
class EnvironmentKey:
    """One environment, in words; every component is shown as it is."""

    platform: str
    machine: str  # CPU model, cores, memory
    image: str  # its tag, a digest of all that it is made of; "none" on the host engine
    compiler: str
    build_tools: str  # CMake, Ninja
    python: str
    torch: str
    engine: str
    cache: str
    selection: str  # operators

    @property
    def digest(self) -> str:
        """What the store knows it by."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changes(self, before: EnvironmentKey) -> list[str]:
        """What differs: ``compiler changed: g++ 12.2 -> g++ 13.1``."""
        then = asdict(before)
        return [
            f"{name.replace('_', ' ')} changed: {then[name]} -> {now}"
            for name, now in asdict(self).items()
            if then[name] != now
        ]

    def __str__(self) -> str:
        return "; ".join(asdict(self).values())


def environment_key(result: PlatformResult) -> EnvironmentKey:
    """The environment that a platform ran in, as far as the agent got to describe it."""
    facts = result.environment
    return EnvironmentKey(
        platform=title(result.platform, simulated=result.simulated),
        machine=_machine(_part(facts, "machine")),
        image=_text(_part(_part(facts, "engine"), "image").get("reference"), "none"),
        compiler=_text(facts.get("compiler")),
        build_tools=f"{_text(facts.get('cmake'))}, ninja {_text(facts.get('ninja'))}",
        python=f"Python {_text(facts.get('python'))}",
        torch=f"torch {_text(facts.get('torch'), 'none')}",
        engine=f"{_text(_part(facts, 'engine').get('name'))} engine",
        cache=_cache(_part(facts, "compiler_cache")),
        selection=_text(_part(facts, "selection").get("operators"), "all operators"),
    )


def _part(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object, default: str = UNKNOWN) -> str:
    return str(value) if value not in (None, "") else default


def _machine(facts: Mapping[str, Any]) -> str:
    memory = facts.get("memory_bytes")
    gib = f"{round(memory / GIB)} GiB" if isinstance(memory, int) else f"memory {UNKNOWN}"
    return f"{_text(facts.get('cpu_model'))}, {_text(facts.get('cores'))} cores, {gib}"


def _cache(facts: Mapping[str, Any]) -> str:
    state, rate = facts.get("state"), facts.get("hit_rate")
    if not facts or state is None:
        return "no compiler cache"
    if state == "cold" or not isinstance(rate, float):
        return f"{state} compiler cache"
    return f"warm compiler cache, {'half or more' if rate >= HALF else 'less than half'} hits"
