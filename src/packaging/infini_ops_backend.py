"""scikit-build-core as the build backend, for wheels with an SBOM.

scikit-build-core refuses a wheel whose `.dist-info` has more files than the metadata that pip
prepared before. An SBOM is known only after the build, so it is built without that metadata.
"""

from __future__ import annotations

from typing import Any

from scikit_build_core import build
from scikit_build_core.build import *  # noqa: F403


def build_wheel(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None
) -> str:
    """Build a wheel; its metadata is that of ``metadata_directory``, with an SBOM beside it."""
    del metadata_directory
    return build.build_wheel(wheel_directory, config_settings)


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: Any = None
) -> str:
    """Build an editable wheel, as ``build_wheel``."""
    del metadata_directory
    return build.build_editable(wheel_directory, config_settings)
