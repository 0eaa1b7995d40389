"""Skips or leaves out the tests of operators that were not selected for the build.

A plug-in of pytest; ``conftest`` adds it. ``INFINI_OPS_TORCH_OPS`` selects the operators of a
build, and the metadata lists them. A test that calls an operator that was not selected, in any way,
skips with that reason. Tests of single overloads that were not selected are left out and counted by
function. So are tests of the full suite, which take seconds with any selection.

``WITH_CPU_KERNELS=OFF`` leaves out all kernels of the CPU, and tests that call them skip, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from installed import (
    NATIVE_SLOTS,
    class_name,
    metadata,
    native_metadata,
    native_operators,
    overloads,
    selection,
)
from reasons import SkipReason, skip

import infini.ops

MARKER = "operators"
FULL = "full_suite"
CPU_KERNELS = "cpu_kernels"
NOT_SELECTED = "not selected"  # in the metadata
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
_RECORDED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    text = f"{MARKER}(*names): operators that the test needs; without names: any operator of torch"
    config.addinivalue_line("markers", text)
    text = f"{CPU_KERNELS}: calls the CPU's hand-written kernels; skips if the build has none"
    config.addinivalue_line("markers", text)
    text = f"{FULL}: takes seconds, tests no single operator; left out if operators are selected"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests that a build with selected operators does not need."""
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if _is_left_out(item) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    counts = Counter(item.nodeid.partition("[")[0] for item in left_out)
    config.stash[_LEFT_OUT] = dict(sorted(counts.items()))


def _is_left_out(item: pytest.Item) -> bool:
    """Report whether a test is of an operator that was not selected, or of the full suite only."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    of_case = getattr(parameters.get("case"), "name", None)
    names = (parameters.get("shadowing"), parameters.get("alone"), of_case)
    is_selected = getattr(parameters.get("overload"), "is_selected", True)
    if selection() is None:
        return not is_selected
    is_full = item.get_closest_marker(FULL) is not None
    return is_full or not is_selected or not left_out_names().isdisjoint(names)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Makes the first test of every process record the selection; skips by the markers."""
    narrowed = selection()
    if narrowed is not None and not item.config.stash.get(_RECORDED, False):
        item.config.stash[_RECORDED] = True
        recorded = {**narrowed, "left_out": item.config.stash[_LEFT_OUT]}
        item.user_properties.append(("selection", recorded))
    for marker in item.iter_markers(MARKER):
        _require(marker.args)
        if not marker.args and not overloads():
            skip(SkipReason.NOT_SELECTED, "this library was built without any operator of torch")
    if item.get_closest_marker(CPU_KERNELS) and not has_cpu_kernels():
        skip(SkipReason.NOT_SELECTED, "this library was built without kernels of the CPU")
    with _skipping():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    with _skipping():
        return (yield)


@contextmanager
def _skipping() -> Iterator[None]:
    """Skips the test if it, or a fixture, uses an operator that was not selected."""
    try:
        yield
    except AttributeError as error:
        if error.obj is infini.ops and error.name is not None:
            _require([error.name])
        raise


def _require(names: Iterable[str]) -> None:
    """Skips the test if one of the operators, or its class, was not selected."""
    for name in names:
        if name in left_out_names():
            skip(SkipReason.NOT_SELECTED, f"this library was built without {name}")


@cache
def has_cpu_kernels() -> bool:
    """Whether this build has a hand-written kernel of the CPU."""
    return any(
        platform == "cpu" and slot in NATIVE_SLOTS
        for operator in native_operators()
        for platform, slot in operator.slots
    )


@cache
def left_out_names() -> frozenset[str]:
    """The public names of the operators that were not selected, and of their classes."""
    aten = {
        entry["aten_name"] for entry in metadata()["skipped"] if entry["reason"] == NOT_SELECTED
    }
    names = {name for each in aten for name in _public_names(each)}
    names |= {entry["name"] for entry in native_metadata()["not_selected"]}
    names -= set(infini.ops.__all__)
    return frozenset(names | set(map(class_name, names)))


def _public_names(aten_name: str) -> Iterable[str]:
    """Returns the public names of its out-of-place form and of its in-place form."""
    core = ("internal_" if aten_name.startswith("_") else "") + aten_name.strip("_")
    return (core, f"{core}_inplace")
