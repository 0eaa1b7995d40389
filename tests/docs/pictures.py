"""Flowcharts of Mermaid in the pages: read for the tests, and drawn for the site.

GitHub draws Mermaid's text by itself. Material for MkDocs loads 3 MB of JavaScript for it from
another site, which needs a network: https://github.com/squidfunk/mkdocs-material/issues/7965. Here
``mkdocs.yml`` names ``fence``, which draws an SVG when the site is built.

What is understood of Mermaid: ``flowchart TD``, nodes ``name[text]`` and arrows ``a --> b``,
``a -.-> b`` and ``a -->|label| b``, one on each line. A node is drawn one row below the lowest node
that points to it, so an arrow always points down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any

NODE = re.compile(r'(\w+)\["?([^"\]]+)"?\]')
ARROW = re.compile(r"(\w+) (-->|-\.->)(?:\|([^|]+)\|)? (\w+)")
CHARACTER, LINE, MARGIN = 7.2, 18, 8  # pixels, at a font size of 13
GAP_X, GAP_Y = 28, 40
ORDERINGS = 8  # after so many, the rows of a picture of this size stay as they are


class PictureError(ValueError):
    """A line that is not understood."""


@dataclass(frozen=True)
class Arrow:
    """An arrow of a picture."""

    start: str
    end: str
    label: str = ""
    dotted: bool = False


@dataclass(frozen=True)
class Picture:
    """A flowchart."""

    nodes: dict[str, str]
    """Text by name; lines are separated by ``<br>``."""
    arrows: tuple[Arrow, ...]


def parse(text: str) -> Picture:
    """Read a flowchart; raises ``PictureError``."""
    nodes: dict[str, str] = {}
    arrows = []
    for number, line in enumerate(text.strip().splitlines(), 1):
        words = line.strip()
        if match := ARROW.fullmatch(words):
            arrows.append(Arrow(match[1], match[4], match[3] or "", match[2] != "-->"))
        elif match := NODE.fullmatch(words):
            nodes[match[1]] = match[2]
        elif words and words != "flowchart TD":
            raise PictureError(f"line {number}: got {words!r}, expected a node or an arrow")
    unknown = {name for arrow in arrows for name in (arrow.start, arrow.end)} - nodes.keys()
    if unknown:
        raise PictureError(f"arrows of unknown nodes: {', '.join(sorted(unknown))}")
    return Picture(nodes, tuple(arrows))


@dataclass
class _Layout:
    """Where everything of a picture is; a long arrow passes an empty place in each row."""

    picture: Picture
    rows: list[list[str]] = field(default_factory=list)
    routes: dict[Arrow, list[str]] = field(default_factory=dict)
    at: dict[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ranks = self._ranks()
        self.rows = [[] for _ in range(max(ranks.values(), default=0) + 1)]
        for name in self.picture.nodes:
            self.rows[ranks[name]].append(name)
        for number, arrow in enumerate(self.picture.arrows):
            between = range(ranks[arrow.start] + 1, ranks[arrow.end])
            empty = [f"{number}:{row}" for row in between]
            for row, name in zip(between, empty, strict=True):
                self.rows[row].append(name)
            self.routes[arrow] = [arrow.start, *empty, arrow.end]
        self._order()
        self._place()

    def _ranks(self) -> dict[str, int]:
        ranks = dict.fromkeys(self.picture.nodes, 0)
        for _ in ranks:
            for arrow in self.picture.arrows:
                ranks[arrow.end] = max(ranks[arrow.end], ranks[arrow.start] + 1)
        if max(ranks.values(), default=0) >= len(ranks) > 0:
            raise PictureError("arrows in a circle")
        return ranks

    def _order(self) -> None:
        """Sort each row by where its neighbours are, so that few arrows cross."""
        near: dict[str, list[str]] = {}
        for route in self.routes.values():
            for one, other in pairwise(route):
                near.setdefault(one, []).append(other)
                near.setdefault(other, []).append(one)
        for turn in range(ORDERINGS):
            place = {
                name: (index + 0.5) / len(row)
                for row in self.rows
                for index, name in enumerate(row)
            }
            for row in self.rows[:: 1 if turn % 2 else -1]:
                means = {
                    name: sum(place[each] for each in near.get(name, [name]))
                    / len(near.get(name, [name]))
                    for name in row
                }
                row.sort(key=means.__getitem__)

    def _place(self) -> None:
        widths = [sum(map(self._column, row)) + GAP_X * (len(row) - 1) for row in self.rows]
        y = float(MARGIN)
        for row, width in zip(self.rows, widths, strict=True):
            x = MARGIN + (max(widths) - width) / 2
            height = max(map(self.height, row))
            for name in row:
                self.at[name] = (x + self._column(name) / 2, y + height / 2)
                x += self._column(name) + GAP_X
            y += height + GAP_Y
        self.size = (max(widths) + 2 * MARGIN, y - GAP_Y + MARGIN)

    def _column(self, name: str) -> float:
        """The width of a node or of a label above it."""
        labels = [len(arrow.label) for arrow in self.picture.arrows if arrow.end == name]
        return max(self.width(name), max(labels, default=0) * CHARACTER)

    def lines(self, name: str) -> list[str]:
        return self.picture.nodes.get(name, "").split("<br>")

    def width(self, name: str) -> float:
        return max(map(len, self.lines(name))) * CHARACTER + 2 * MARGIN

    def height(self, name: str) -> float:
        return len(self.lines(name)) * LINE + 2 * MARGIN


def draw(picture: Picture) -> str:
    """The picture as SVG, in the colors of the page."""
    layout = _Layout(picture)
    width, height = layout.size
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' style="max-width: {width:.0f}px; width: 100%" role="img" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8"'
        ' markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
        "</defs>",
        *_arrows(layout),
        *_nodes(layout),
        "</svg>",
    ]
    return "".join(parts)


def _arrows(layout: _Layout) -> Iterator[str]:
    for arrow, route in layout.routes.items():
        points = [layout.at[name] for name in route]
        (x, y), (last_x, last_y) = points[0], points[-1]
        y += layout.height(route[0]) / 2
        points[0], points[-1] = (x, y), (last_x, last_y - layout.height(route[-1]) / 2)
        path = f"M{x:.1f} {y:.1f}"
        for to_x, to_y in points[1:]:
            middle = (y + to_y) / 2
            path += f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}"
            x, y = to_x, to_y
        dashes = ' stroke-dasharray="4 3"' if arrow.dotted else ""
        yield f'<path d="{path}" fill="none" stroke="currentColor"{dashes} marker-end="url(#tip)"/>'
        if arrow.label:
            at = f'x="{x:.1f}" y="{y - GAP_Y / 2 + 4:.1f}" text-anchor="middle"'
            gap = 'stroke="var(--md-default-bg-color, #fff)" stroke-width="5"'
            yield f"<text {at} {gap}>{escape(arrow.label)}</text>"
            yield f'<text {at} fill="currentColor">{escape(arrow.label)}</text>'


def _nodes(layout: _Layout) -> Iterator[str]:
    for name in layout.picture.nodes:
        (x, y), width, height = layout.at[name], layout.width(name), layout.height(name)
        yield (
            f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}"'
            f' height="{height:.1f}" rx="4" fill="var(--md-code-bg-color, #f5f5f5)"'
            ' stroke="currentColor"/>'
        )
        top = y - (len(layout.lines(name)) - 1) * LINE / 2 + 4
        for number, line in enumerate(layout.lines(name)):
            at = f'x="{x:.1f}" y="{top + number * LINE:.1f}"'
            weight = ' font-weight="bold"' if number == 0 else ""
            anchor = f'text-anchor="middle" fill="currentColor"{weight}'
            yield f"<text {at} {anchor}>{escape(line)}</text>"


def fence(source: str, *_: Any, **__: Any) -> str:
    """Draw a fence; pymdownx.superfences calls it by ``mkdocs.yml``."""
    return f"<figure>{draw(parse(source))}</figure>"
