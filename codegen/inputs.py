"""All inputs of a generation, and a digest of them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codegen.aten import Torch
from codegen.output import digest_of

SELECTION_VARIABLE = "INFINI_OPS_TORCH_OPS"
_CODEGEN = Path(__file__).parent
PREDEFINED = _CODEGEN / "selections"  # <name>.yaml; the variable selects one by its name
_LIBRARIES = ("jinja2", "pyyaml")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a generation: torch, a selection file, and the variable that narrows it."""

    torch: Torch
    selection: Path
    variable: str  # the value of INFINI_OPS_TORCH_OPS, "" if it is not set
    base_dir: Path  # folder of the hand-written base headers, which replace generated ones
    registry: Path | None = None  # native_ops_metadata.json; None: no native operators

    def hand_written_bases(self) -> frozenset[str]:
        """The operators that have a hand-written base header."""
        return frozenset(path.stem for path in self.base_dir.glob("*.h"))

    def native_operators(self) -> frozenset[str]:
        """The hand-written operators that the build implements."""
        if self.registry is None:
            return frozenset()
        return frozenset(
            operator["name"] for operator in json.loads(self.registry.read_bytes())["ops"]
        )

    def digest(self) -> str:
        """A digest of the contents of all inputs. Their paths have no effect on it."""
        return digest_of(self._parts())

    def _parts(self) -> Iterator[bytes]:
        for name in _LIBRARIES:
            with contextlib.suppress(
                importlib.metadata.PackageNotFoundError
            ):  # its import reports it
                yield f"{name} {importlib.metadata.version(name)}".encode()
        yield from _files(_CODEGEN, "*.py")
        yield from _files(_CODEGEN, "*.j2")
        yield self.variable.encode()
        narrowing = [Path(self.variable)] if is_selection_path(self.variable) else []
        narrowing += sorted(PREDEFINED.glob("*.yaml"))
        torch = self.torch
        files = (torch.version_file, torch.schema_file, torch.tags_file, self.registry)
        for path in filter(None, (self.selection, *narrowing, *files)):
            yield _content(path)
        yield from _files(torch.torchgen, "*.py")
        yield from _files(self.base_dir, "*.h")


def is_selection_path(variable: str) -> bool:
    """Whether a value of the variable is the path of a selection file."""
    return variable.endswith((".yaml", ".yml"))


def _files(folder: Path, pattern: str) -> Iterator[bytes]:
    for path in sorted(folder.rglob(pattern)):
        yield path.relative_to(folder).as_posix().encode()
        yield _content(path)


def _content(path: Path) -> bytes:
    """Read a file. A missing one is empty here and is reported by its reader."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
