"""Building and installing: cold, with the first allowlist, again, and as a wheel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.context import ROOT, Context
from bench.errors import MeasurementError
from bench.rows import Measurement
from bench.usage import Usage
from codegen.inputs import SELECTION_VARIABLE

FIRST_ALLOWLIST = ROOT / "bench" / "first_allowlist.yaml"


def measure_install(context: Context) -> Iterator[Measurement]:
    """Everything that the installed torch has, from nothing."""
    usage = _install(context, context.build_dir)
    yield _measurement("install", usage, note=_size(context.site))


def measure_first_allowlist(context: Context) -> Iterator[Measurement]:
    """The names that the library began with, from nothing."""
    build_dir = context.scratch / "first-build"
    usage = _install(context, build_dir, target="first", selection=str(FIRST_ALLOWLIST))
    yield _measurement("first-allowlist", usage, note=_size(context.scratch / "first"))


def measure_rebuild(context: Context) -> Iterator[Measurement]:
    """All operators but one, then all, then all again: three builds in one folder."""
    build_dir, site = context.scratch / "rebuild", context.scratch / "rebuilt"
    names = _generated_names(context)
    added = names.pop(len(names) // 2)
    selection = context.scratch / "all_but_one.yaml"
    selection.write_text(yaml.safe_dump({"operators": names}), encoding="utf-8")
    _install(context, build_dir, target="rebuilt", selection=str(selection))
    before = _operators(site)
    grown = _install(context, build_dir, target="rebuilt")
    if _operators(site) - before != {added}:
        raise MeasurementError(
            f"a build of all operators after one of all but {added} changed the operators by "
            f"{sorted(_operators(site) ^ before)}"
        )
    yield _measurement("rebuild-unchanged", _install(context, build_dir, target="rebuilt"))
    yield _measurement("rebuild-one-added", grown, note=f"added {added}")


def measure_wheel(context: Context) -> Iterator[Measurement]:
    """The size of the wheel of the whole surface."""
    folder = context.scratch / "wheel"
    command = [
        *(context.python, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps"),
        *("--wheel-dir", str(folder), "-C", f"build-dir={context.build_dir}"),
    ]
    context.measured(command, context.environment(), log="wheel.log")
    wheel = next(folder.glob("*.whl"))
    yield Measurement(key="wheel", value=wheel.stat().st_size / 1e6, note=wheel.name)


def _install(
    context: Context, build_dir: Path, *, target: str = "site", selection: str | None = None
) -> Usage:
    variables = {} if selection is None else {SELECTION_VARIABLE: selection}
    command = context.install_command(build_dir=build_dir, target=context.scratch / target)
    return context.measured(command, context.environment(**variables), log=f"{target}.log")


def _generated_names(context: Context) -> list[str]:
    """The ATen names of all operators, in order."""
    folder = context.scratch / "names"
    command = [context.python, "-m", "codegen", "torch", "--output-dir", str(folder)]
    context.run(command, context.environment())
    return sorted(_names(folder))


def _operators(site: Path) -> set[str]:
    return _names(site / "infini" / "ops")


def _names(folder: Path) -> set[str]:
    metadata = json.loads((folder / "torch_ops_metadata.json").read_text(encoding="utf-8"))
    return {operator["aten_name"] for operator in metadata["ops"]}


def _size(site: Path) -> str:
    return f"{len(_operators(site))} operators"


def _measurement(key: str, usage: Usage, note: str = "") -> Measurement:
    return Measurement(
        key=key,
        value=usage.cpu_s,
        note="; ".join(filter(None, (note, usage.note()))),
        detail=usage.detail(),
    )
