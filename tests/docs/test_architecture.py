"""``docs/architecture.md`` shows what is in the sources."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import reduce
from importlib import import_module
from xml.etree import ElementTree

import grimp
import pytest

from tests.docs import pictures
from tests.docs.reference import PLATFORM_FILES, ROOT, RUN_FILES

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DATA, ROOMS, LIBRARY = map(
    pictures.parse, re.findall(r"^```mermaid\n(.*?)^```$", PAGE, re.M | re.S)
)
BY_NAME = ("cli", "commands")  # importlib: only the module of the command at hand
PLAIN_FILES = {"ci.yaml", *RUN_FILES, *PLATFORM_FILES}


def imports() -> set[tuple[str, str]]:
    """Every room with every room that it imports."""
    graph = grimp.build_graph("ci", cache_dir=None)
    pairs = (
        (importer.split(".")[1:2], imported.split(".")[1:2])
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    )
    return {(a[0], b[0]) for a, b in pairs if a and b and a != b} | {BY_NAME}


def without_implied(arrows: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """The arrows that no path of other arrows implies."""
    arrows = set(arrows)

    def reachable(start: str) -> set[str]:
        below = {end for other, end in arrows if other == start}
        return below.union(*map(reachable, below))

    return {
        (start, end)
        for start, end in arrows
        if not any(end in reachable(other) for one, other in arrows if one == start)
    }


def test_the_rooms_and_their_arrows() -> None:
    shown = {
        (ROOMS.nodes[arrow.start].partition("<br>")[0], ROOMS.nodes[arrow.end].partition("<br>")[0])
        for arrow in ROOMS.arrows
    }
    assert shown == without_implied(imports())
    assert [(arrow.start, arrow.end) for arrow in ROOMS.arrows if arrow.dotted] == [BY_NAME]


@pytest.mark.parametrize("name", DATA.nodes)
def test_a_shape_exists(name: str) -> None:
    shape, _, module = DATA.nodes[name].partition("<br>")
    if shape not in PLAIN_FILES:
        assert hasattr(import_module(module), shape)


@pytest.mark.parametrize("arrow", DATA.arrows, ids=lambda arrow: arrow.label)
def test_an_arrow_makes_the_lower_shape(arrow: pictures.Arrow) -> None:
    room, module, *names = arrow.label.split(".")
    maker = reduce(getattr, names, import_module(f"ci.{room}.{module}"))
    shape = DATA.nodes[arrow.end].partition("<br>")[0]
    if shape not in PLAIN_FILES:
        assert re.search(rf"\b{shape}\b", inspect.getsource(maker))


def test_a_trap_has_its_test() -> None:
    page = (ROOT / "docs" / "things-that-bite.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| to .*$", page, re.MULTILINE)
    tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(?:\w+::)?(\w+))?` \|$", page, re.MULTILINE)
    assert len(tests) == len(rows) > 20
    for path, name in tests:
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"


def test_the_build_of_the_library() -> None:
    for node in LIBRARY.nodes.values():
        shape, _, place = node.partition("<br>")
        if place.startswith("codegen."):
            assert hasattr(import_module(place), shape)
    for arrow in LIBRARY.arrows:
        if "/" in arrow.label:
            assert (ROOT / arrow.label).is_file(), arrow.label
            continue
        module, name = arrow.label.split(".")
        maker = inspect.getsource(getattr(import_module(f"codegen.{module}"), name))
        for file in re.findall(r"\w+\.cc", LIBRARY.nodes[arrow.end]):
            assert file in maker
        if LIBRARY.nodes[arrow.end].endswith("<br>codegen.model"):
            assert f"-> {LIBRARY.nodes[arrow.end].partition('<br>')[0]}:" in maker


def test_the_places_of_the_library() -> None:
    section = PAGE.partition("\n## How the library is built\n")[2]
    paths = re.findall(r"`((?:codegen|src)/[\w/.]+)`", section)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
    functions = re.findall(r"`(?:\w+::)?(\w+)` in `([\w/.]+)`", section)
    assert len(functions) == 2
    for function, path in functions:
        assert f"{function}(" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("picture", [ROOMS, DATA, LIBRARY], ids=["rooms", "data", "library"])
def test_a_picture_is_drawn(picture: pictures.Picture) -> None:
    image = ElementTree.fromstring(pictures.draw(picture))  # noqa: S314
    kinds = [element.tag.rpartition("}")[2] for element in image]
    assert kinds.count("rect") == len(picture.nodes)
    assert kinds.count("path") == len(picture.arrows)
    *_, width, height = map(float, image.attrib["viewBox"].split())
    for box in image.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, right, bottom = (float(box.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + right <= width
        assert 0 <= y <= y + bottom <= height


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flowchart TD\n a[A]\n a --> b", "arrows of unknown nodes: b"),
        ("flowchart TD\n subgraph a", "line 2: got 'subgraph a', expected a node or an arrow"),
    ],
)
def test_what_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(pictures.PictureError, match=re.escape(message)):
        pictures.parse(text)


def test_a_circle_is_not_drawn() -> None:
    circle = pictures.parse("flowchart TD\na[A]\nb[B]\na --> b\nb --> a")
    with pytest.raises(pictures.PictureError, match="arrows in a circle"):
        pictures.draw(circle)
