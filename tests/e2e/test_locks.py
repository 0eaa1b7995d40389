"""The locks of real runs: what was installed, from where, and what a project is bound to."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.facts.stack import stack_changes
from ci.model.plan import DistributionPlan
from ci.model.results import PlatformResult
from ci.protocol.stage_kind import StageKind
from ci.run.platform import judge_platform
from ci.util.requirements import read_lock
from tests.e2e.benches import Bench, engine_or_skip
from tests.e2e.plans import REQUIREMENTS, stage

PIP = ("python", "-m", "pip")
STAGES = (
    stage("wheel", *PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", "dist"),
    stage("install", *PIP, "install", "{wheel}", "six==1.17.0"),
    stage("pytest", "python", "-m", "pytest", "tests", "-k", "answer", kind=StageKind.PYTEST),
)
SETUP = """\
from setuptools import Extension, setup

setup(ext_modules=[Extension("tiny._sum", ["sum.c"], libraries=["z"])])
"""
SOURCE = """\
#define PY_SSIZE_T_CLEAN
#include <Python.h>
unsigned long {function}(unsigned long, const unsigned char *, unsigned);
static PyObject *sum(PyObject *self, PyObject *none) {{
    return PyLong_FromUnsignedLong({function}(0, NULL, 0));
}}
static PyMethodDef methods[] = {{{{"sum", sum, METH_NOARGS, ""}}, {{NULL}}}};
static struct PyModuleDef module = {{PyModuleDef_HEAD_INIT, "_sum", "", -1, methods}};
PyMODINIT_FUNC PyInit__sum(void) {{ return PyModule_Create(&module); }}
"""


def run(folder: Path, requirements: str = REQUIREMENTS, function: str = "crc32") -> PlatformResult:
    """Run the tiny project with a compiled module, which calls a function of zlib."""
    bench = Bench(engine_or_skip("host"), folder)
    project = folder / "project"
    (project / "setup.py").write_text(SETUP)
    (project / "sum.c").write_text(SOURCE.format(function=function))
    plan = bench.plan(*STAGES, requirements=requirements)
    plan = replace(plan, distributions=DistributionPlan(folder="dist"))
    if requirements.startswith("lock-version"):
        path = plan.host.requirements.rename(folder / "pylock.toml")
        plan = replace(plan, host=replace(plan.host, requirements=path))
    result = judge_platform(plan, bench.run(plan)).result
    assert result.verdict.product == "passed", result.verdict
    return result


def lock_of(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "results" / "pylock.toml").read_text())


def test_the_locks_of_a_run(tmp_path: Path) -> None:
    result = run(tmp_path)
    lock = lock_of(tmp_path)
    assert read_lock((tmp_path / "results" / "pylock.toml").read_text())
    packages = {it["name"]: it for it in lock["packages"]}
    # Of the requirements, and of a stage: the hashes are those of the files.
    assert {"pytest", "six"} <= packages.keys()
    unlocked = lock["tool"]["infini-ci"]["unlocked"]
    assert "pip" in unlocked  # it was there before any installer
    assert "tiny" not in {*packages, *unlocked}
    [six] = packages["six"]["wheels"]
    subprocess.run([*PIP, "download", "--no-deps", "-q", "-d", tmp_path, "six==1.17.0"], check=True)
    [file] = tmp_path.glob("six-*.whl")
    assert six["hashes"] == {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert set(result.artifacts) >= {"pylock.toml", "stack.json", "symbols.json"}
    assert not [it for it in result.artifacts if "report" in it]

    stack = json.loads((tmp_path / "results" / "stack.json").read_text())
    [zlib] = (it for name, it in stack["libraries"].items() if name.startswith("libz.so"))
    assert (zlib["symbols"], len(zlib.get("build_id") or zlib["sha256"]) >= 16) == (1, True)
    symbols = json.loads((tmp_path / "results" / "symbols.json").read_text())
    [needed] = (it for name, it in symbols.items() if name.startswith("libz.so"))
    assert needed == ["crc32"]


@pytest.mark.complete
def test_a_run_of_the_lock_of_another(tmp_path: Path) -> None:
    first = run(tmp_path / "first")
    text = (tmp_path / "first" / "results" / "pylock.toml").read_text()
    second = run(tmp_path / "second", requirements=text, function="adler32")
    assert (tmp_path / "second" / "results" / "pylock.toml").read_text() == text
    assert "differ from the lock" not in str(second.notes)
    folders = [tmp_path / "first", tmp_path / "second"]
    before, after = (it.model_copy(update={"platform": "results"}) for it in (first, second))
    found = stack_changes(before, after, folders)
    [change] = [it for it in found if "symbols" in it.component]
    assert change.before == "1"
    assert change.after == "1 (added: adler32; removed: crc32)"
