"""Renders the templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import jinja2

from codegen import cpp, stubs
from codegen.devices import platforms
from codegen.model import Library
from codegen.slots import SLOT_COUNT, Slot, measured_orders, read_slot_times

METADATA_NAME = "torch_ops_metadata.json"
METADATA_SCHEMA_VERSION = 1
STUB_NAME = "__init__.pyi"

_TEMPLATES = Path(__file__).parent / "templates"


def make_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - C++, not HTML
    )
    environment.globals["cpp"] = cpp
    environment.globals["stubs"] = stubs
    return environment


def render_headers() -> dict[str, str]:
    """Render the C++ headers of ``codegen.slots``, by file name."""
    environment = make_environment()
    slot = environment.get_template("slot.h.j2").render(slots=list(Slot), count=SLOT_COUNT)
    times = read_slot_times()
    orders = measured_orders(times)
    slot_order = environment.get_template("slot_order.h.j2").render(
        times=times, orders=orders, most=max(len(order.slots) for order in orders)
    )
    return {"slot.h": slot, "slot_order.h": slot_order}


def render_platforms() -> dict[str, str]:
    """Render the platforms for C++ and for CMake, by path relative to the output folder."""
    paths = ("include/infini/ops/device_type.h", "platforms.cmake")
    environment = make_environment()
    return {
        path: environment.get_template(f"{Path(path).name}.j2").render(platforms=platforms())
        for path in paths
    }


def render_torch(library: Library, hand_written: frozenset[str]) -> dict[str, str]:
    """Render all files of the PyTorch backend, by path relative to the output folder.

    ``hand_written`` contains the operators that have a base header in ``src/base``.
    """
    environment = make_environment()
    base = environment.get_template("base.h.j2")
    files = {
        f"base/{operator.name}.h": base.render(operator=operator)
        for operator in library.operators
        if operator.name not in hand_written
    }
    for name in ("operator_table.cc", "torch/kernels.cc", STUB_NAME):
        files[name] = environment.get_template(f"{name}.j2").render(library=library)
    files[METADATA_NAME] = _metadata(library)
    return files


def _metadata(library: Library) -> str:
    """``torch_ops_metadata.json``, one operator overload a line."""
    operations = [
        {
            "name": operator.name,
            "aten_name": overload.schema.aten_name,
            "overload_name": overload.schema.overload_name,
            "params": [parameter.metadata() for parameter in overload.parameters],
        }
        for operator in library.operators
        for overload in operator.overloads
    ]
    skipped = [{**vars(skip), "reason": skip.reason.value} for skip in library.skipped]
    narrowing = library.narrowing
    head = {
        "schema_version": METADATA_SCHEMA_VERSION,
        "torch_version": library.torch_version,
        "selection": narrowing
        and {
            "asked": narrowing.asked,
            "operators": narrowing.operators,
            "overloads": len(library.overloads),
            "of": narrowing.overloads,
        },
    }
    rows = f'"ops": [{_lines(operations)}],\n"skipped": [{_lines(skipped)}]'
    return f"{json.dumps(head)[:-1]},\n{rows}}}\n"


def _lines(rows: Sequence[object]) -> str:
    return "\n" + ",\n".join(map(json.dumps, rows)) + "\n" if rows else ""
