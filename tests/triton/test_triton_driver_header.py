"""What src/triton/driver.c declares of NVIDIA's driver is what cuda.h in Triton's wheel says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tests.triton.triton_workplace import ROOT

ENUMERATIONS = (
    "CUdevice_attribute",
    "CUfunction_attribute",
    "CUjit_option",
    "CUlibraryOption",
    "CUstreamCaptureMode",
)


@pytest.fixture(scope="module")
def header(_triton: None) -> str:
    spec = importlib.util.find_spec("triton")
    assert spec
    assert spec.origin
    path = Path(spec.origin).parent / "backends" / "nvidia" / "include" / "cuda.h"
    return re.sub(r"/\*.*?\*/", "", path.read_text(errors="replace"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def driver() -> str:
    return (ROOT / "src" / "triton" / "driver.c").read_text().replace("\\\n", " ")


def types(parameters: str) -> list[str]:
    """Return the types of a prototype's parameters, with enumerations as C's integers."""
    parameters = re.sub(rf"\b({'|'.join(ENUMERATIONS)})\b", "int", parameters)
    parameters = parameters.replace("unsigned int", "unsigned")
    return [re.sub(r"\w+$", "", each.strip()).replace(" ", "") for each in parameters.split(",")]


def test_functions(header: str, driver: str) -> None:
    declared = re.findall(r"X\((\w+), (\w+),\s*\((.*?)\)\)", driver)
    assert len(declared) > 10
    for name, symbol, parameters in declared:
        # Old versions of some are declared, too, further down.
        prototype, *_ = re.findall(rf"CUresult CUDAAPI {name}\((.*?)\);", header, re.DOTALL)
        assert types(parameters) == types(prototype), name
        newest = re.findall(rf"#define {name}\s+(\w+)$", header, re.MULTILINE)
        assert [symbol] == (newest or [name])


def test_constants(header: str, driver: str) -> None:
    constants = re.findall(r"^  (CU\w+) = (\d+),$", driver, re.MULTILINE)
    assert len(constants) > 5
    for name, value in constants:
        assert re.search(rf"\b{name}\s*=\s*{value}\b", header), name
