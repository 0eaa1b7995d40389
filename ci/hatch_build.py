"""What the distribution `infini-ci` takes from the rest of the repository.

In an unpacked source distribution the recipes are here already, and the dependencies in PKG-INFO.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = REPOSITORY / "pyproject.toml"
EXTRAS = ("attest", "capacity", "devices", "otel", "parquet", "postgresql", "ray", "sigstore")
# Their places in the package, where ci/util/files.py finds them.
TAKEN = {"docker": "recipes", "LICENSE": "LICENSE"}


class Dependencies(MetadataHookInterface):
    """Makes the dependency group `ci` the dependencies, and other groups extras."""

    def update(self, metadata: dict[str, Any]) -> None:
        if PROJECT.exists():
            groups = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["dependency-groups"]
            metadata["dependencies"] = groups["ci"]
            metadata["optional-dependencies"] = {name: groups[name] for name in EXTRAS}


class Recipes(BuildHookInterface[Any]):
    """Adds the recipes of images as files of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if PROJECT.exists() and version != "editable":
            paths = {str(REPOSITORY / here): there for here, there in TAKEN.items()}
            build_data["force_include"] |= paths
