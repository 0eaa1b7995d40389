"""The environment key: times of runs are compared only if their keys are equal.

The key has everything that changes the time of equal sources: the machine and its devices, the
image, the toolchain, the engine, the state of the compiler cache, and the build options.

Not in the key, and why:

* Host name, kernel release and engine version: a fleet of equal machines is one environment, and
  an update must not start a new history.
* The digest of the image: every rebuild of one recipe has a new one. The tag is a digest of all
  inputs of the image. Of the base image it covers only the name, so the key has the base image's
  digest too. Recipes do not pin all packages; the versions of compilers, Python and the packages
  below show what a rebuild changed.
* The versions of all other packages: in a fresh environment one of them changes every week.
* The trust level of the run: it selects the compiler cache, whose hits are in the key.
* The exact hit rate of a compiler cache; the key has two bands. Lost hits are a cause to report.
* Compiler flags and stage commands: they belong to the sources. Settings from the environment
  (``CXXFLAGS``, ``SKBUILD_CMAKE_DEFINE``) belong to no commit, so they are in the key.

For a run from before a component was recorded, the component is "unknown" or has its default.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, NamedTuple

from ci.model.results import OLD_KIND, PlatformResult, title
from ci.util.text import counted

UNKNOWN = "unknown"
NONE = "none"
NO_TORCH = f"torch {NONE}"
GIB = 1 << 30
HALF = 0.5  # of the compilations: the limit between the two bands of hits
SHOWN_DIGITS = 12  # of a digest, as Docker shows it
# Libraries that are compiled into the build, and test tools; patch versions do not change times.
LIBRARIES = ("nanobind", "pybind11", "triton")
NOT_SOFTWARE = (
    "platform",
    "machine",
    "devices",
    "instruction_sets",
    "cache",
    "selection",
    "shards",
)
TEST_TOOLS = ("pytest", "pytest-xdist")


class CacheState(StrEnum):
    """The state of the compiler cache: components of keys."""

    NONE = "no compiler cache"
    COLD = "cold compiler cache"
    FEW_HITS = "warm compiler cache, less than half hits"
    MANY_HITS = "warm compiler cache, half or more hits"


class ComponentChange(NamedTuple):
    """A component in which two environments differ."""

    component: str
    before: str
    after: str

    def __str__(self) -> str:
        """``compiler changed: g++ 12.2 -> g++ 13.1``."""
        return f"{self.component} changed: {self.before} -> {self.after}"


@dataclass(frozen=True, kw_only=True)
class EnvironmentKey:
    """One environment; every component is a text that reports show.

    A new component needs a default, so that the keys of old runs do not change.
    """

    platform: str
    machine: str  # CPU model, cores, memory
    image: str  # its tag, a digest of all its inputs; on the host engine the Python
    compiler: str
    build_tools: str  # CMake, Ninja
    python: str
    torch: str
    engine: str
    cache: str  # a `CacheState`
    selection: str  # operators
    base_image: str = NONE
    device_compiler: str = NONE
    devices: str = NONE
    libraries: str = NONE
    test_tools: str = NONE
    options: str = NONE  # build options from the environment
    instruction_sets: str = NONE  # of the processor: they differ between models of one name
    shards: str = NONE  # processes that share the tests

    @property
    def digest(self) -> str:
        """The key of this environment in the store."""
        text = json.dumps(self._unusual_components(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changes(self, before: EnvironmentKey) -> list[ComponentChange]:
        """Return the changed components."""
        then, now = vars(before), vars(self)
        differing = [name for name in now if then[name] != now[name]]
        if len(differing) > 1 and NONE in (self.instruction_sets, before.instruction_sets):
            # Not recorded, rather than changed.
            differing = [name for name in differing if name != "instruction_sets"]
        return [
            ComponentChange(name.replace("_", " "), then[name], now[name]) for name in differing
        ]

    def is_comparable(self, before: EnvironmentKey) -> bool:
        """Whether only software differs, so that another time is news, though not of the sources.

        Another machine, cache, selection of operators or number of shards takes another time as a
        matter of course.
        """
        return all(getattr(self, name) == getattr(before, name) for name in NOT_SOFTWARE)

    def __str__(self) -> str:
        shown = self._unusual_components()
        if self.platform.endswith(OLD_KIND):  # kept as it is in the digests of the store
            name = self.platform.removesuffix(OLD_KIND)
            shown["platform"] = title(name, name, simulated=True)
        if self.selection != ALL_OPERATORS:
            shown["selection"] = f"selected {self.selection}"
        return "; ".join(value for value in shown.values() if value != NONE)

    def _unusual_components(self) -> dict[str, str]:
        """The components that differ from their defaults."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in vars(self).items() if value != usual[name]}


ALL_OPERATORS = "all operators"  # the component of an environment without a selection


def shards_component(shards: int) -> str:
    """Return the component of an environment whose tests so many processes share."""
    return counted(shards, "shard") if shards > 1 else NONE


def platform_component(platform: str, *, simulated: bool) -> str:
    """Return the component of a platform, which differs with and without its hardware."""
    return platform + (OLD_KIND if simulated else "")


def environment_key(result: PlatformResult) -> EnvironmentKey:
    """Return the environment of a platform's run, as far as the agent recorded it."""
    facts = result.environment
    image, packages = result.facts("engine", "image"), result.facts("packages")
    return EnvironmentKey(
        platform=platform_component(result.platform, simulated=result.simulated),
        machine=_machine(result.facts("machine")),
        image=_text(image.get("reference"), NONE),
        base_image=_base_image(image),
        compiler=_text(facts.get("compiler")),
        device_compiler=_text(facts.get("device_compiler"), NONE),
        build_tools=f"{_text(facts.get('cmake'))}, ninja {_text(facts.get('ninja'))}",
        libraries=_versions(packages, LIBRARIES),
        test_tools=_versions(packages, TEST_TOOLS),
        python=f"Python {_text(facts.get('python'))}",
        torch=f"torch {facts['torch']}" if facts.get("torch") else NO_TORCH,
        engine=f"{_text(result.facts('engine').get('name'))} engine",
        devices=_devices(facts.get("devices")),
        cache=_cache(result.facts("compiler_cache")),
        selection=result.selected or ALL_OPERATORS,
        instruction_sets=_text(result.facts("machine").get("instruction_sets"), NONE),
        shards=shards_component(len(result.shards)),
        options=", ".join(f"{n}={v}" for n, v in sorted(result.facts("options").items())) or NONE,
    )


def successors(keys: Mapping[str, EnvironmentKey]) -> dict[str, str]:
    """Map digests of keys from older versions of this program to those that continue their series.

    A key without instruction sets continues as the first newer key that matches in all other
    components. ``keys`` are by digest, in the order of their first runs, so a similar machine that
    is added later changes nothing.
    """
    newer: dict[EnvironmentKey, str] = {}
    for digest, key in keys.items():
        if key.instruction_sets != NONE:
            newer.setdefault(replace(key, instruction_sets=NONE), digest)
    return {digest: newer[key] for digest, key in keys.items() if key in newer}


def _text(value: object, default: str = UNKNOWN) -> str:
    return str(value) if value not in (None, "") else default


def _machine(facts: Mapping[str, Any]) -> str:
    memory = facts.get("memory_bytes")
    gib = f"{round(memory / GIB)} GiB" if isinstance(memory, int) else f"memory {UNKNOWN}"
    # Processors other than x86 may not report their model.
    model = _text(facts.get("cpu_model") or facts.get("architecture"))
    return f"{model}, {_text(facts.get('cores'))} cores, {gib}"


def _base_image(facts: Mapping[str, Any]) -> str:
    digest = _text(facts.get("base_digest"), "").partition(":")[2][:SHOWN_DIGITS]
    base = _text(facts.get("base"), NONE)
    return f"{base} ({digest})" if digest else base


def _devices(leases: object) -> str:
    """Return the kinds of the leased devices; a device that was leased twice counts once."""
    devices = [it for it in leases if isinstance(it, dict)] if isinstance(leases, list) else []
    kinds = Counter(
        _text(device.get("name"), "device")
        + (f" (driver {device['driver']})" if device.get("driver") else "")
        for device in {str(device.get("uuid")): device for device in devices}.values()
    )
    return ", ".join(f"{number} x {kind}" for kind, number in sorted(kinds.items())) or NONE


def _versions(packages: Mapping[str, Any], names: tuple[str, ...]) -> str:
    versions = {name: _text(packages[name]).split(".") for name in names if name in packages}
    return ", ".join(f"{name} {'.'.join(it[:2])}" for name, it in versions.items()) or NONE


def _cache(facts: Mapping[str, Any]) -> str:
    state, rate = facts.get("state"), facts.get("hit_rate")
    if not facts or state is None:
        return CacheState.NONE
    if state == "cold":
        return CacheState.COLD
    if not isinstance(rate, int | float):
        return f"{state} compiler cache"
    return CacheState.MANY_HITS if rate >= HALF else CacheState.FEW_HITS
