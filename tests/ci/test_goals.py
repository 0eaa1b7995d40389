"""The committed contracts against the goals that this project has for them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

from ci.facts.contract import load_contract
from ci.model.outcomes import State
from ci.model.platforms import PLATFORMS
from ci.plan.load import load_config
from ci.util.invocation import REPOSITORY

CONTRACT = REPOSITORY / "tests" / "ops" / "contracts" / "cpu.yaml"
SIMULATED = REPOSITORY / "tests" / "simulated"
ALLOWLIST = REPOSITORY / "bench" / "first_allowlist.yaml"
SIMULATED_PLATFORMS = [
    name
    for name, platform in load_config(SIMULATED / "ci.yaml").platforms.items()
    if platform.simulated and PLATFORMS[name].is_simulable
]
TORCH_SLOT = 8
LEAST_REACHABLE = 1300  # torch 2.13 has 1,330
LEAST_SHARE = 0.95
LEAST_SIMULATED_SHARE = 0.94  # of what passes on the CPU
UPDATE = "run `python -m ci run cpu`, then `python -m ci contract cpu`"


@cache
def overloads(contract: Path = CONTRACT) -> Mapping[str, tuple[State, ...]]:
    """Every overload on the torch slot, with the outcomes of its dtypes."""
    simulated = contract != CONTRACT
    suite = load_contract(contract, platform=contract.stem, simulated=simulated).suite
    found: dict[str, list[State]] = defaultdict(list)
    for test, state in suite.operators.items():
        if test.slot == TORCH_SLOT:
            found[test.overload].append(state)
    return {name: tuple(states) for name, states in found.items()}


def passes(overload: str, contract: Path = CONTRACT) -> bool:
    return any(state.outcome.good for state in overloads(contract).get(overload, ()))


def share(names: Iterable[str], passing: Iterable[str]) -> float:
    return len(set(passing)) / len(set(names))


def base_name(overload: str) -> str:
    return overload.partition(".")[0]


def test_the_first_allowlist() -> None:
    names = set(yaml.safe_load(ALLOWLIST.read_text(encoding="utf-8"))["operators"])
    wanted = [name for name in overloads() if base_name(name) in names]
    failing = [name for name in wanted if not passes(name)]
    assert {base_name(name) for name in wanted} == names, UPDATE
    assert share(wanted, set(wanted) - set(failing)) >= 0.97, failing
    # A name passes if all its overloads do.
    assert share(names, names - {base_name(name) for name in failing}) >= 0.98, failing


# Of the installed torch: has a kernel on the CPU, and so has what an ``out=`` is made from that
# torch made itself.
REACHABLE = """
import json
from pathlib import Path

import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import SchemaKind

def has_kernel(name):
    try:
        return torch._C._dispatch_has_computed_kernel_for_dispatch_key("aten::" + name, "CPU")
    except RuntimeError:  # not registered
        return False

native = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
files = [str(native / name) for name in ("native_functions.yaml", "tags.yaml")]
functions = parse_native_yaml(*files).native_functions
siblings = {
    function.func.signature(): str(function.func.name)
    for function in functions
    if function.func.kind() is SchemaKind.functional
}

def reachable(function):
    name = str(function.func.name)
    made = "generated" in function.tags
    sibling = siblings.get(function.func.signature(), name) if made else name
    return has_kernel(name) and has_kernel(sibling)

print(json.dumps([str(function.func.name) for function in functions if reachable(function)]))
"""


def test_the_whole_surface() -> None:
    if importlib.util.find_spec("torchgen") is None:
        pytest.skip("torch is not installed")
    command = [sys.executable, "-c", REACHABLE]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    reachable = overloads().keys() & set(json.loads(found.stdout))
    assert len(reachable) >= LEAST_REACHABLE, UPDATE
    failing = sorted(name for name in reachable if not passes(name))
    assert share(reachable, reachable - set(failing)) >= LEAST_SHARE, failing


@pytest.mark.parametrize("platform", SIMULATED_PLATFORMS)
def test_what_passes_on_the_cpu_passes_on_a_simulated_device(platform: str) -> None:
    contract = SIMULATED / "contracts" / f"{platform}.yaml"
    wanted = [name for name in overloads() if passes(name)]
    failing = [name for name in wanted if not passes(name, contract)]
    least = LEAST_SIMULATED_SHARE
    assert share(wanted, set(wanted) - set(failing)) >= least, failing
