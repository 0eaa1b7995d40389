"""The budgets of the library's build: how they are measured, and what exceeds them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bench import budgets
from bench.budgets import Figures, excesses, load_budgets, measure, table
from bench.compilers import compile_unit
from bench.rows import MeasurementError
from ci.errors import ConfigError

BUDGETS = Figures(
    generated_lines=40_000,
    translation_units=100,
    wheel_kb=1_200,
    build_units=3.0,
    build_units_without_cpu_kernels=2.0,
    import_ratio=0.01,
)
NAMES = tuple(Figures.model_fields)
COUNTS, COSTS = NAMES[:3], NAMES[3:]


def scaled(name: str, factor: float) -> Figures:
    value = getattr(BUDGETS, name)
    return BUDGETS.model_copy(update={name: type(value)(value * factor)})


class TestLimits:
    @pytest.mark.parametrize("name", COUNTS)
    def test_a_count_fails_beyond_5_percent(self, name: str) -> None:
        assert list(excesses(scaled(name, 1.05), BUDGETS)) == []
        (error,) = excesses(scaled(name, 1.06), BUDGETS)
        assert error.startswith(f"bench/budgets.yaml: {name}: got ")

    @pytest.mark.parametrize("name", COSTS)
    def test_a_cost_fails_beyond_40_percent(self, name: str) -> None:
        assert list(excesses(scaled(name, 1.39), BUDGETS)) == []
        (error,) = excesses(scaled(name, 1.41), BUDGETS)
        assert error.startswith(f"bench/budgets.yaml: {name}: got ")

    def test_the_error_tells_how_to_raise_the_budget(self) -> None:
        (error,) = excesses(scaled("translation_units", 1.06), BUDGETS)
        assert error == (
            "bench/budgets.yaml: translation_units: got 106, expected at most 105, which is the "
            "budget of 100 and 5%: translation units. Undo what added it. If the library is worth "
            "the cost, set `translation_units: 106` there, and give the reason in the commit."
        )

    def test_less_than_the_budget_is_fine(self) -> None:
        values: dict[str, Any] = dict.fromkeys(COUNTS, 1) | dict.fromkeys(COSTS, 0.001)
        cheap = Figures(**values)
        assert list(excesses(cheap, BUDGETS)) == []

    def test_the_table_has_every_figure(self) -> None:
        rows = list(table(scaled("wheel_kb", 2), BUDGETS))
        assert "| size of the wheel in kB, without its RECORD | 2400 | 1200 | 1260 |" in rows
        assert "| cold build, in compilations of torch/torch.h | 3 | 3 | 4.2 |" in rows
        assert len(rows) == 2 + len(NAMES)


class TestFile:
    def test_it_has_every_figure(self) -> None:
        assert load_budgets().model_dump().keys() == set(NAMES)

    def test_all_its_errors_are_reported_with_their_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "budgets.yaml"
        text = budgets.FILE.read_text(encoding="utf-8")
        file.write_text(text.replace("wheel_kb: ", "weel_kb: ") + "translation_units: 1\n")
        with pytest.raises(ConfigError, match="wheel_kb: got nothing, expected a value") as caught:
            load_budgets(file)
        assert "weel_kb: got an unknown key" in str(caught.value)
        assert "translation_units: got a duplicate key, first given on line" in str(caught.value)

    def test_a_cost_is_no_count(self, tmp_path: Path) -> None:
        file = tmp_path / "budgets.yaml"
        text = budgets.FILE.read_text(encoding="utf-8")
        file.write_text(text.replace("wheel_kb: ", "wheel_kb: 0.5 #"))
        with pytest.raises(ConfigError, match=r"wheel_kb: got 0.5 \(number\), expected"):
            load_budgets(file)


class TestUnit:
    def test_a_compiler_that_fails_is_reported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pytest.importorskip("torch", reason="torch is not installed")
        monkeypatch.setenv("CXX", "false")
        with pytest.raises(MeasurementError, match="the compiler of the unit ended with 1"):
            compile_unit(tmp_path)


PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(small LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
file(WRITE "${PROJECT_BINARY_DIR}/generated/torch/table.cc" "int table = 1;\\n\\n")
file(WRITE "${PROJECT_BINARY_DIR}/generated/table.h" "extern int table;\\n")
file(WRITE "${PROJECT_BINARY_DIR}/generated/names.json" "[\\n]\\n")
add_library(infini_ops SHARED
  "${PROJECT_BINARY_DIR}/generated/torch/table.cc" cpu/add.cc core/dispatch.cc)
install(TARGETS infini_ops LIBRARY DESTINATION .)
"""


@pytest.mark.skipif(shutil.which("ninja") is None, reason="ninja is not installed")
def test_a_build_is_measured_in_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small project and small modules; only the unit, which takes a minute, is not compiled."""
    units = iter([[0.5, 0.5], [0.25, 2.0]])
    monkeypatch.setattr(budgets, "compile_unit", lambda _: next(units))
    sources = {
        "tree/CMakeLists.txt": PROJECT,
        "tree/cpu/add.cc": "#include <string>\nstd::string add() { return {}; }",
        "tree/core/dispatch.cc": "int dispatch() { return 0; }",
        "site/torch.py": "import asyncio",
        "site/infini/ops/__init__.py": "",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    build_dir, scratch = tmp_path / "build", tmp_path / "scratch"
    scratch.mkdir()

    def build(variables: Mapping[str, str]) -> budgets.Library:
        configure = ["cmake", "-G", "Ninja", "-S", str(tmp_path / "tree"), "-B", str(build_dir)]
        for command in (configure, ["cmake", "--build", str(build_dir)]):
            environment = {**os.environ, **variables}
            subprocess.run(command, env=environment, check=True, capture_output=True)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
        return budgets.Library(build_dir=build_dir, environment=environment)

    measured = measure(scratch, build)
    assert measured.generated_lines == 3
    assert measured.translation_units == 3
    assert 2 < measured.wheel_kb < 100
    assert 0 < measured.build_units_without_cpu_kernels < measured.build_units
    assert measured.import_ratio > 0
