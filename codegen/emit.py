"""Renders the templates and keeps an output folder equal to what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from codegen import cpp
from codegen.model import Library, Parameter
from codegen.slots import SLOT_COUNT, Slot

METADATA_NAME = "torch_ops_metadata.json"
METADATA_SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"

_TEMPLATES = Path(__file__).parent / "templates"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - C++, not HTML
    )
    environment.globals["cpp"] = cpp
    return environment


def render_slot_header() -> str:
    """The C++ twin of ``codegen.slots.Slot``."""
    return _environment().get_template("slot.h.j2").render(slots=list(Slot), count=SLOT_COUNT)


def render_torch(library: Library, hand_written: frozenset[str]) -> dict[str, str]:
    """All files of the PyTorch backend, by path relative to the output folder.

    ``hand_written`` holds the operators whose base header stands in ``src/base``.
    """
    environment = _environment()
    base = environment.get_template("base.h.j2")
    files = {
        f"base/{operator.name}.h": base.render(operator=operator)
        for operator in library.operators
        if operator.name not in hand_written
    }
    for name in ("operator_table.cc", "torch/kernels.cc"):
        files[name] = environment.get_template(f"{name}.j2").render(library=library)
    files[METADATA_NAME] = render_metadata(library)
    return files


def render_metadata(library: Library) -> str:
    """``torch_ops_metadata.json``, one operator overload a line."""
    operations = [
        json.dumps(
            {
                "name": operator.name,
                "aten_name": overload.aten_name,
                "overload_name": overload.overload_name,
                "params": [_parameter_metadata(parameter) for parameter in overload.parameters],
            }
        )
        for operator in library.operators
        for overload in operator.overloads
    ]
    skipped = [
        json.dumps(
            {
                "aten_name": skip.aten_name,
                "overload_name": skip.overload_name,
                "reason": skip.reason.value,
            }
        )
        for skip in library.skipped
    ]
    head = json.dumps(
        {"schema_version": METADATA_SCHEMA_VERSION, "torch_version": library.torch_version}
    )
    return f'{head[:-1]},\n"ops": [{_lines(operations)}],\n"skipped": [{_lines(skipped)}]}}\n'


def _lines(items: list[str]) -> str:
    return "\n" + ",\n".join(items) + "\n" if items else ""


def _parameter_metadata(parameter: Parameter) -> dict[str, object]:
    return {
        "name": parameter.name,
        "type": parameter.aten_type,
        "is_tensor": parameter.is_tensor,
        "is_out": parameter.is_out,
        "default": parameter.aten_default,
    }


def hand_written_bases(folder: Path) -> frozenset[str]:
    """The operators that have a hand-written base header in ``folder``."""
    return frozenset(path.stem for path in folder.glob("*.h"))


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What bringing the output folder up to date does, as relative paths."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def synchronize(files: Mapping[str, str], folder: Path, *, dry_run: bool = False) -> Changes:
    """Makes ``folder`` hold ``files`` and their manifest.

    Only what differs is written, so that a build system sees no change where there is
    none. Files of an earlier manifest that are no longer generated are removed; others,
    which somebody else made, are left alone.
    """
    names = [*files, MANIFEST_NAME]
    manifest = json.dumps({"files": sorted(names)}, indent=1) + "\n"
    wanted = {**files, MANIFEST_NAME: manifest}
    stale = sorted(_earlier_files(folder) - wanted.keys())
    changed = [
        name for name, text in wanted.items() if write_if_changed(folder / name, text, dry_run)
    ]
    if not dry_run:
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    return Changes(
        written=tuple(changed),
        unchanged=tuple(sorted(wanted.keys() - set(changed))),
        removed=tuple(stale),
    )


def write_if_changed(path: Path, text: str, dry_run: bool = False) -> bool:
    """Makes the file hold ``text``; returns whether it did not, and with ``dry_run`` only that."""
    content = text.encode()
    if path.is_file() and path.read_bytes() == content:
        return False
    if not dry_run:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(content)
        partial.replace(path)
    return True


def _earlier_files(folder: Path) -> set[str]:
    """What the last manifest names and is there; a damaged manifest vouches for nothing."""
    try:
        names = json.loads((folder / MANIFEST_NAME).read_bytes())["files"]
        inside = folder.resolve()
        found = {name: (folder / name).resolve() for name in names}
    except (OSError, ValueError, TypeError, KeyError):
        return set()
    return {name for name, path in found.items() if path.is_relative_to(inside) and path.is_file()}
