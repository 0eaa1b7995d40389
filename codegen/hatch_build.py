"""Which files of the repository the distribution `infini-codegen` has, in the folder `tree`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
TREE = (
    "LICENSE",
    "ci/platforms",
    "codegen",
    "src/base",
    "src/cmake/Torch.cmake",
    "src/include/infini/ops/data_type.h",
    "src/triton/ops",
)
OF_THE_DISTRIBUTION = {"hatch_build.py", "installed", "pyproject.toml"}
LEFT_OUT = {*OF_THE_DISTRIBUTION, "__pycache__"}


class Tree(BuildHookInterface[Any]):
    """Adds these files, from the repository or from an unpacked source distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            raise RuntimeError("infini-codegen: in a checkout, run python -m codegen instead")
        unpacked = HERE / "tree"
        root = unpacked if unpacked.exists() else HERE.parent
        inside = "tree" if self.target_name == "sdist" else "infini/codegen/tree"
        for name in TREE:
            paths = (root / name).iterdir() if name == "codegen" else (root / name,)
            build_data["force_include"] |= {
                str(path): f"{inside}/{path.relative_to(root)}"
                for path in paths
                if path.name not in LEFT_OUT
            }
