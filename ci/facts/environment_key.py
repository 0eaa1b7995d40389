"""The environment key: times of runs are compared only where it is the same.

It is made of all that changes how long the same sources take: the machine and its devices, the
image, the toolchain, the engine, what the compiler cache had, and what was asked to be built.

What is left out, and why:

* The host's name, the kernel's release and the versions of the engine: a fleet of equal machines
  is one environment, and an update of one of them is no reason to begin a history anew.
* The digest of the image: every rebuild of one recipe has another, made a second later. Its tag is
  a digest of all that the image is made of, but of the base image the name only, which is why that
  one's digest stands beside it. What a rebuild brings of its own, since recipes name no version of
  each package, shows in the versions of the compilers, of Python and of the packages below.
* The versions of all other packages: in a fresh environment one of them changes every week.
* The hit rate of a compiler cache, but for two bands: hits that are lost are a cause to be named.
* Flags of the compilers and commands of the stages: they come with the sources. What the
  environment sets beside them (``CXXFLAGS``, ``SKBUILD_CMAKE_DEFINE``) is no part of any commit.

A run of before this or that was recorded says "unknown", or what is usual.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ci.model.results import PlatformResult, title

UNKNOWN = "unknown"
NONE = "none"
GIB = 1 << 30
HALF = 0.5  # of the compilations: what a cache had is one of two bands
SHOWN_DIGITS = 12  # of a digest, as Docker shows it
# Compiled as a part of what is built, or what runs the tests; the third number changes no times.
LIBRARIES = ("nanobind", "pybind11", "triton")
TEST_TOOLS = ("pytest", "pytest-xdist")


@dataclass(frozen=True, kw_only=True)
class EnvironmentKey:
    """One environment, in words; every component is shown as it is.

    Whoever adds a component gives it a default, so that the keys of old runs stay as they are.
    """

    platform: str
    machine: str  # CPU model, cores, memory
    image: str  # its tag, a digest of all that it is made of; on the host engine the Python
    compiler: str
    build_tools: str  # CMake, Ninja
    python: str
    torch: str
    engine: str
    cache: str
    selection: str  # operators
    base_image: str = NONE
    device_compiler: str = NONE
    devices: str = NONE
    libraries: str = NONE
    test_tools: str = NONE
    options: str = NONE  # of the build, from the environment
    instruction_sets: str = NONE  # of the processor: models of one name differ in them

    @property
    def digest(self) -> str:
        """What the store knows it by."""
        text = json.dumps(self._told(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changes(self, before: EnvironmentKey) -> list[str]:
        """What differs: ``compiler changed: g++ 12.2 -> g++ 13.1``."""
        then = asdict(before)
        differing = {name: now for name, now in asdict(self).items() if then[name] != now}
        if len(differing) > 1 and NONE in (self.instruction_sets, before.instruction_sets):
            differing.pop("instruction_sets", None)  # not recorded then, rather than another
        return [
            f"{name.replace('_', ' ')} changed: {then[name]} -> {now}"
            for name, now in differing.items()
        ]

    def __str__(self) -> str:
        return "; ".join(value for value in self._told().values() if value != NONE)

    def _told(self) -> dict[str, str]:
        """The components that differ from the usual."""
        usual = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != usual[name]}


def environment_key(result: PlatformResult) -> EnvironmentKey:
    """The environment that a platform ran in, as far as the agent got to describe it."""
    facts = result.environment
    image, packages = result.facts("engine", "image"), result.facts("packages")
    return EnvironmentKey(
        platform=title(result.platform, simulated=result.simulated),
        machine=_machine(result.facts("machine")),
        image=_text(image.get("reference"), NONE),
        base_image=_base_image(image),
        compiler=_text(facts.get("compiler")),
        device_compiler=_text(facts.get("device_compiler"), NONE),
        build_tools=f"{_text(facts.get('cmake'))}, ninja {_text(facts.get('ninja'))}",
        libraries=_versions(packages, LIBRARIES),
        test_tools=_versions(packages, TEST_TOOLS),
        python=f"Python {_text(facts.get('python'))}",
        torch=f"torch {_text(facts.get('torch'), NONE)}",
        engine=f"{_text(result.facts('engine').get('name'))} engine",
        devices=_devices(facts.get("devices")),
        cache=_cache(result.facts("compiler_cache")),
        selection=_text(result.facts("selection").get("operators"), "all operators"),
        instruction_sets=_text(result.facts("machine").get("instruction_sets"), NONE),
        options=", ".join(f"{n}={v}" for n, v in sorted(result.facts("options").items())) or NONE,
    )


def successors(keys: Mapping[str, EnvironmentKey]) -> dict[str, str]:
    """The digest of the key that a series continues with, where its own is of an older program.

    A key without instruction sets continues as the first newer key that matches in all other
    components. ``keys`` are by digest, in the order in which runs first had them: another machine
    of the same model, seen later, changes nothing.
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
    # Processors other than x86 need not report their model.
    model = _text(facts.get("cpu_model") or facts.get("architecture"))
    return f"{model}, {_text(facts.get('cores'))} cores, {gib}"


def _base_image(facts: Mapping[str, Any]) -> str:
    digest = _text(facts.get("base_digest"), "").partition(":")[2][:SHOWN_DIGITS]
    base = _text(facts.get("base"), NONE)
    return f"{base} ({digest})" if digest else base


def _devices(leases: object) -> str:
    """What kinds of devices the stages had, each device once however often it was leased."""
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
        return "no compiler cache"
    if state == "cold" or not isinstance(rate, int | float):
        return f"{state} compiler cache"
    return f"warm compiler cache, {'half or more' if rate >= HALF else 'less than half'} hits"
