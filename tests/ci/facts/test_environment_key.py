"""The facts that distinguish environments, and those that do not."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from ci.facts.environment_key import EnvironmentKey, environment_key, successors
from ci.model.results import ShardResult
from tests.ci.published import PUBLISHED, platform_result

FACTS: dict[str, Any] = {
    "machine": {
        "hostname": "builder-1",
        "cpu_model": "EPYC 9654",
        "cores": 16,
        "memory_bytes": 135_000_000_000,
        "kernel": "6.1.0-18",
        "architecture": "x86_64",
    },
    "compiler": "c++ (Debian 12.2.0-14) 12.2.0",
    "device_compiler": "nvcc: Cuda compilation tools, release 13.0, V13.0.88",
    "cmake": "cmake version 4.3.0",
    "ninja": "1.13.2",
    "python": "3.11.2",
    "torch": "2.13.0",
    "packages": {"nanobind": "3.1.0", "pytest": "9.2.0", "pytest-xdist": "3.8.0", "six": "1.0"},
    "selection": {},
    "options": {"SKBUILD_CMAKE_DEFINE": "WITH_NVIDIA=ON", "CXXFLAGS": "-O2"},
    "compiler_cache": {"state": "warm", "hit_rate": 0.97},
    "devices": [{"uuid": "GPU-1", "name": "H100", "driver": "580.95"}] * 2,
    "engine": {
        "name": "docker",
        "version": "28.1",
        "seconds": 9.5,
        "image": {
            "reference": "infini-ci/nvidia:0123",
            "digest": "sha256:aa",
            "base": "nvcr.io/nvidia/pytorch:25.12-py3",
            "base_digest": "sha256:0123456789abcdef0123",
        },
    },
}


def key_of(**changes: Any) -> EnvironmentKey:
    return environment_key(
        platform_result("NVIDIA", PUBLISHED[0][1:], environment={**FACTS, **changes})
    )


def part(name: str, /, **changes: Any) -> dict[str, Any]:
    return {name: {**FACTS[name], **changes}}


def image(**changes: Any) -> dict[str, Any]:
    return part("engine", image={**FACTS["engine"]["image"], **changes})


def test_a_key_is_shown_as_it_is() -> None:
    assert str(key_of()).split("; ") == [
        "nvidia",
        "EPYC 9654, 16 cores, 126 GiB",
        "infini-ci/nvidia:0123",
        "c++ (Debian 12.2.0-14) 12.2.0",
        "cmake version 4.3.0, ninja 1.13.2",
        "Python 3.11.2",
        "torch 2.13.0",
        "docker engine",
        "warm compiler cache, half or more hits",
        "all operators",
        "nvcr.io/nvidia/pytorch:25.12-py3 (0123456789ab)",
        "nvcc: Cuda compilation tools, release 13.0, V13.0.88",
        "1 x H100 (driver 580.95)",
        "nanobind 3.1",
        "pytest 9.2, pytest-xdist 3.8",
        "CXXFLAGS=-O2, SKBUILD_CMAKE_DEFINE=WITH_NVIDIA=ON",
    ]


CHANGES: dict[str, dict[str, Any]] = {
    "machine": part("machine", cores=8),
    "image": image(reference="infini-ci/nvidia:4567"),
    "base image": image(base_digest="sha256:ff"),
    "compiler": {"compiler": "c++ 13.1"},
    "device compiler": {"device_compiler": "nvcc: 13.1"},
    "build tools": {"ninja": "1.14"},
    "libraries": part("packages", nanobind="4.0.0"),
    "test tools": part("packages", pytest="9.3.0"),
    "python": {"python": "3.12"},
    "torch": {"torch": "2.14"},
    "engine": part("engine", name="host"),
    "devices": {"devices": [{"uuid": "GPU-1", "name": "H100"}, {"uuid": "GPU-2", "name": "H100"}]},
    "cache": part("compiler_cache", hit_rate=0.4),
    "selection": {"selection": {"operators": "abs"}},
    "options": {"options": {}},
    "instruction sets": part("machine", instruction_sets="AVX2"),
}


def test_runs_with_other_numbers_of_shards_are_other_series() -> None:
    row = platform_result("NVIDIA", PUBLISHED[0][1:], environment=FACTS)
    of = ShardResult(shard=1, tests=1, seconds=1.0, exit_code=0)
    two, three = (
        environment_key(row.model_copy(update={"shards": (of,) * number})) for number in (2, 3)
    )
    assert three.changes(two) == [("shards", "2 shards", "3 shards")]
    assert len({key.digest for key in (key_of(), two, three)}) == 3
    assert not three.is_comparable(two)


@pytest.mark.parametrize(("name", "changes"), CHANGES.items(), ids=CHANGES)
def test_changes_of_the_environment_are_reported(name: str, changes: dict[str, Any]) -> None:
    now = key_of(**changes)
    [change] = now.changes(key_of())
    assert change.component == name
    assert str(change) == f"{name} changed: {change.before} -> {change.after}"
    assert now.digest != key_of().digest


SAME: dict[str, dict[str, Any]] = {
    "host name": part("machine", hostname="builder-2"),
    "kernel": part("machine", kernel="6.1.0-19"),
    "a few bytes": part("machine", memory_bytes=135_000_000_001),
    "a rebuilt image": image(digest="sha256:bb"),
    "engine version": part("engine", version="29.0", seconds=7.0),
    "other packages": part("packages", six="2.0", pytest="9.2.1"),
    "hit rate within its band": part("compiler_cache", hit_rate=0.6),
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_what_does_not_is_no_part_of_it(changes: dict[str, Any]) -> None:
    assert key_of(**changes).digest == key_of().digest


def test_nothing_is_known_of_a_run_that_never_began() -> None:
    key = environment_key(platform_result("CPU", PUBLISHED[0][1:], environment={}))
    assert key.machine == "unknown, unknown cores, memory unknown"
    assert (key.compiler, key.devices, key.options) == ("unknown", "none", "none")


def test_odd_facts_are_no_error() -> None:
    odd = {name: ["?"] for name in FACTS} | {"devices": ["?", {"uuid": None}]}
    key = environment_key(platform_result("CPU", PUBLISHED[0][1:], environment=odd))
    assert key.devices == "1 x device"


def test_a_processor_without_a_model_has_its_architecture() -> None:
    machine = {**FACTS["machine"], "cpu_model": None, "architecture": "aarch64"}
    assert key_of(machine=machine).machine == "aarch64, 16 cores, 126 GiB"


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (None, "no compiler cache"),
        ({"state": None, "hit_rate": None}, "no compiler cache"),
        ({"state": "cold", "hit_rate": 0.0}, "cold compiler cache"),
        ({"state": "warm", "hit_rate": 1}, "warm compiler cache, half or more hits"),
        ({"state": "warm", "hit_rate": 0.49}, "warm compiler cache, less than half hits"),
    ],
)
def test_states_of_the_compiler_cache(facts: dict[str, Any] | None, state: str) -> None:
    assert key_of(compiler_cache=facts).cache == state


def test_a_series_of_before_instruction_sets_were_recorded_goes_on() -> None:
    old, other = key_of(), key_of(compiler="c++ 13.1")
    small, large = (key_of(**part("machine", instruction_sets=it)) for it in ("AVX2", "AVX-512"))

    def goes_on(*keys: EnvironmentKey) -> dict[str, str]:
        return successors({key.digest: key for key in keys})

    assert goes_on(old, other) == {}
    assert goes_on(old, other, small) == {old.digest: small.digest}
    assert goes_on(old, small, large) == {old.digest: small.digest}  # the first one


def test_a_component_that_says_nothing_leaves_old_keys_as_they_were() -> None:
    # The digest that the first ten components had alone.
    plain = EnvironmentKey(**dict.fromkeys(list(asdict(key_of()))[:10], "x"))
    assert plain.digest == "f9a6013909346909"
    assert replace(plain, devices="1 x H100").digest != plain.digest
