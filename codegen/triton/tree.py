"""Finds the operators of ``src/triton/ops`` and reads what their ``build.py`` say."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.errors import GenerationError
from codegen.triton import spec
from codegen.triton.worker import explain

_ROOT = Path(__file__).resolve().parents[2]
OPERATORS = _ROOT / "src" / "triton" / "ops"
_DATA_TYPES = _ROOT / "src" / "include" / "infini" / "ops" / "data_type.h"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One folder of ``src/triton/ops``."""

    name: str  # of the operator: "rms_norm"
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "kernel.py"

    @property
    def build(self) -> Path:
        return self.folder / "build.py"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """An operator with its variants for each target, in the order in which they are tried."""

    source: Source
    operator: spec.Operator
    variants: Mapping[int, Sequence[spec.Variant]]


def find_sources(folder: Path) -> list[Source]:
    """The operators below ``folder``, by name."""
    folders = sorted({path.parent for path in folder.glob("*/*.*")})
    if not folders:
        raise GenerationError(f"{folder}: no */build.py there; expected one for each operator")
    sources = [Source(name=each.name, folder=each) for each in folders]
    for path in (path for source in sources for path in (source.build, source.kernel)):
        if not path.exists():
            raise GenerationError(f"{path} is not there; expected one for each operator")
    return sources


def read_plan(source: Source, targets: Iterable[int]) -> Plan:
    """Runs ``build.py``; its mistakes are reported with its lines."""
    try:
        module_spec = importlib.util.spec_from_file_location("build", source.build)
        assert module_spec
        assert module_spec.loader
        module = importlib.util.module_from_spec(module_spec)
        module_spec.loader.exec_module(module)
        operator: spec.Operator = module.OPERATOR
        variants = {target: tuple(operator.variants(target)) for target in targets}
    except Exception as error:
        said = explain(error, str(source.build))
        raise GenerationError(f"{source.build} failed:\n{said}") from error
    for target, each in variants.items():
        spec.check(operator, each, f"{source.build}, target {target}")
    return Plan(source=source, operator=operator, variants=variants)


def read_data_types(header: Path = _DATA_TYPES) -> dict[str, int]:
    """The enumerators of DataType, which generated C sources can't include."""
    found = re.findall(r"^  (k\w+) = (\d+),$", header.read_text(), re.MULTILINE)
    data_types = {name: int(value) for name, value in found}
    if missing := spec.TRITON_TYPES.keys() - data_types.keys():
        raise GenerationError(f"{header}: no {', '.join(sorted(missing))} in it")
    return data_types
