"""The rooms of ``ci``: each imports only rooms below it, and no modules import each other."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp
import pytest

ROOMS = (
    "commands",
    "upkeep",
    "run",
    "proof",
    "report",
    "analysis",
    "store",
    "manifests",
    "engines",
    "plan",
    "facts",
    "gates",
    "model",
    "agent",
    "protocol",
    "util",
)
LOOSE = {"__main__", "cli", "errors"}
PACKAGING = "hatch_build"  # which imports no module of ci


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """All imports, those in functions and those for types included."""
    return grimp.build_graph("ci", cache_dir=None)


def test_every_module_is_in_a_room(graph: grimp.ImportGraph) -> None:
    known = {*ROOMS, *LOOSE, PACKAGING}
    assert {name.removeprefix("ci.") for name in graph.find_children("ci")} == known


def test_rooms_import_only_rooms_below(graph: grimp.ImportGraph) -> None:
    layers = ("__main__", "cli", *ROOMS, "errors")
    illegal = graph.find_illegal_dependencies_for_layers(layers=layers, containers={"ci"})
    upwards = {
        " -> ".join((*route.heads, *route.middle, *route.tails))
        for found in illegal
        for route in found.routes
    }
    assert not upwards


def test_the_judge_does_not_import_the_agent(graph: grimp.ImportGraph) -> None:
    inside = graph.find_descendants("ci.agent")
    importers = {it for name in inside for it in graph.find_modules_that_directly_import(name)}
    assert {name.split(".")[1] for name in importers} == {"agent", "engines"}


def test_no_modules_import_each_other(graph: grimp.ImportGraph) -> None:
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
