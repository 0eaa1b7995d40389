"""Torch's device tests are configured from the coverage report of the same torch only."""

from __future__ import annotations

import json
import re
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REMEDY = "; write it with the torch that runs the tests: python -m infini.codegen backend-stubs"


@pytest.fixture(scope="module")
def device_tests() -> Any:
    """Imported here, because torch.testing takes seconds."""
    pytest.importorskip("torch")
    pytest.importorskip("expecttest", reason="torch's device tests need it")
    from codegen.installed import device_tests

    return device_tests


@pytest.fixture(scope="module")
def skips(device_tests: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = device_tests.skips
    return function


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "not a coverage.json (JSONDecodeError", id="no-json"),
        pytest.param("[]", "not a coverage.json (TypeError", id="no-object"),
        pytest.param("{}", "not a coverage.json (KeyError('torch_version'))", id="no-version"),
        pytest.param(
            json.dumps({"torch_version": "1.0", "overloads": []}),
            "torch_version: got '1.0', expected '",
            id="another-torch",
        ),
    ],
)
def test_a_file_that_is_no_report_of_this_torch(
    skips: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "coverage.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{re.escape(f'{file}: {message}')}.*{REMEDY}$"):
        skips(file, [])


def test_a_file_that_is_absent(skips: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"coverage.json: No such file or directory{REMEDY}$"):
        skips(tmp_path / "coverage.json", [])


def capabilities(folder: Path) -> Path:
    """What `python -m ci export --format capabilities` writes, the parts that are read."""
    overloads = ("add.out", "native_layer_norm.out", "silu.out", "tril.out", "mul.out")
    platform = {
        "platform": "acme",
        "slots": {"0": {"sub": {}}, "8": {name: {} for name in overloads}},
        "op_allowlist": ["add", "native_layer_norm", "silu", "mul"],
        "op_overrides": {
            "add": [
                {"dtypes": ["bool", "a_dtype_of_the_future"], "reason": "failed"},
                {"dtypes": ["int8"], "reason": "no kernel on this device"},
            ]
        },
    }
    file = folder / "capabilities.json"
    file.write_text(json.dumps({"schema_version": 1, "platforms": [platform]}), encoding="utf-8")
    return file


def test_torch_s_tests_are_those_that_a_platform_passes(device_tests: Any, tmp_path: Path) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    import torch

    names = ("add", "nn.functional.layer_norm", "nn.functional.silu", "tril", "sub", "expand")
    entries = [each for each in op_db if each.full_name in names]
    assert len(entries) == len(names)
    found = device_tests.reused_tests(capabilities(tmp_path), "acme", entries)
    # tril failed, sub was not tested, and expand, a view, reaches no tested operator.
    assert sorted(found["op_allowlist"]) == ["add", names[1], names[2]]
    [failed, lacking] = found["op_overrides"].pop("add")
    assert (failed.dtypes, lacking.dtypes) == ((torch.bool,), (torch.int8,))
    assert found["op_overrides"] == {}


def test_torch_applies_the_chosen_tests(device_tests: Any, tmp_path: Path) -> None:
    """Torch's own test classes, on the CPU in the place of a device."""
    from torch.testing._internal.common_device_type import (
        CPUTestBase,
        instantiate_device_type_tests,
        ops,
    )
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_utils import TestCase

    import torch

    if not hasattr(CPUTestBase, "set_test_configs"):
        pytest.skip("this torch cannot be configured so")
    entries = [each for each in op_db if each.full_name in ("add", "tril")]

    class TestOperators(TestCase):  # type: ignore[misc, unused-ignore]
        @ops(entries, allowed_dtypes=(torch.bool, torch.int8, torch.float32))
        def test_runs(self, device: str, dtype: Any, op: Any) -> None:
            assert [*op.sample_inputs(device, dtype)]

    CPUTestBase.set_test_configs(
        **device_tests.reused_tests(capabilities(tmp_path), "acme", entries)
    )
    scope: dict[str, Any] = {"__name__": __name__, "TestOperators": TestOperators}
    try:
        instantiate_device_type_tests(TestOperators, scope, only_for="cpu")
    finally:
        CPUTestBase.set_test_configs()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(scope["TestOperatorsCPU"])
    names = str(suite)
    result = unittest.TestResult()
    suite.run(result)
    assert [*result.errors, *result.failures] == []
    skipped = {test._testMethodName: reason for test, reason in result.skipped}
    assert skipped == {
        "test_runs_add_cpu_bool": "add: failed",
        "test_runs_add_cpu_int8": "add: no kernel on this device",
    }
    assert "add_cpu_float32" in names
    assert "tril" not in names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "not a capabilities.json (JSONDecodeError", id="no-json"),
        pytest.param("[]", "not a capabilities.json (TypeError", id="no-object"),
        pytest.param("{}", "not a capabilities.json (KeyError('platforms'))", id="nothing"),
        pytest.param(
            '{"platforms": [{"platform": "cpu"}]}',
            "got platform 'acme', expected one of cpu",
            id="another-platform",
        ),
        pytest.param(
            '{"platforms": [{"platform": "acme", "op_allowlist": [], "slots": []}]}',
            "not a capabilities.json (AttributeError",
            id="no-slots",
        ),
    ],
)
def test_a_file_without_the_platform(
    device_tests: Any, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "capabilities.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{file}: {message}")):
        device_tests.reused_tests(file, "acme", [])


def test_capabilities_that_are_absent(device_tests: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"No such file or directory; write it: python -m ci"):
        device_tests.reused_tests(tmp_path / "capabilities.json", "acme", [])
