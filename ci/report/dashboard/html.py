"""Templates, and data for the script. What a stranger chose is cleaned and escaped here.

Names and messages of tests come from containers: they may hold markup, the end of a script, or
characters that reverse the direction of text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ci.model.verdicts import Product
from ci.report.document import Code, Fold, Heading, Items, Report, Table, spans_of
from ci.util.text import counted, make_inert

TEMPLATES = Path(__file__).parent / "templates"
SYMBOLS = {
    Product.PASSED: "✓",
    Product.FAILED: "✗",
    Product.INCOMPLETE: "?",
    Product.NOT_RUN: "·",
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# Of a spark line, in pixels.
WIDTH, HEIGHT, MARGIN = 120, 24, 3


def render(template: str, **values: Any) -> str:
    """Fill a template; raises ``UndefinedError`` for a name that it is not given."""
    return _ENVIRONMENT.get_template(template).render(**values)


def script(name: str, value: object) -> str:
    """A file that passes data to the page's script: ``dashboard.data("runs", ...)``.

    It is a script, since a page that was opened from a file cannot read other files.
    """
    text = json.dumps([name, clean(value)], separators=(",", ":"), allow_nan=False)
    inert = text.replace("<", r"\u003c")  # no end of a script, wherever the text is put
    return f"dashboard.data(...{inert});\n"


def clean(value: Any) -> Any:
    """Replace what a reader would not see, or would misread, in all texts of a value."""
    if isinstance(value, Markup):
        return value
    if isinstance(value, str):
        return make_inert(value)
    if isinstance(value, Mapping):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [clean(item) for item in value]
    return clean(asdict(value)) if is_dataclass(value) and not isinstance(value, type) else value


def file_stem(kind: str, name: str) -> str:
    """``run-20260101T120000Z``; of a name that is not plain, its digest."""
    plain = name if _PLAIN.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{kind}-{plain}"


def spark_path(values: Sequence[float | None]) -> str:
    """The path of a spark line; it passes over missing values."""
    known = [(place, value) for place, value in enumerate(values) if value is not None]
    low, high = (pick((value for _, value in known), default=0.0) for pick in (min, max))
    span, step = (high - low) or 1.0, (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    heights = ((place, (value - low) / span * (HEIGHT - 2 * MARGIN)) for place, value in known)
    points = [f"{MARGIN + place * step:.1f},{HEIGHT - MARGIN - y:.1f}" for place, y in heights]
    return "M" + "L".join(points) + "h0"  # h0: a single value is a dot


def blocks(report: Report) -> list[Any]:
    """The blocks of a report, as a page shows them."""
    return [block for section in report.document(page=True) for block in section]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clean,
    )
    kinds = {"heading": Heading, "items": Items, "table": Table, "fold": Fold, "code": Code}
    for name, kind in kinds.items():
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    environment.filters |= {"spans": spans_of, "blocks": blocks, "spark": spark_path}
    environment.filters["counted"] = counted
    environment.globals |= {"stem": file_stem, "symbols": SYMBOLS}
    environment.globals |= {"spark_width": WIDTH, "spark_height": HEIGHT}
    return environment


_ENVIRONMENT = _environment()
