"""``bundle.json``: the contents of a bundle, and the places of its members.

A bundle is a plain tar file; members are compressed individually where that helps. All names start
with ``bundle/``. ``bundle.json`` comes last, as it has the digests of all other members.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from ci.model.results import NO_LINEAGE, Lineage
from ci.plan.values import WorkspacePath

FOLDER = "bundle/"
DOCUMENT = "bundle.json"
README = "README.md"
PROGRAM = "program/"  # the orchestrator, its requirements and their wheels
PROGRAM_REQUIREMENTS = PROGRAM + "requirements.txt"
PROGRAM_WHEELS = PROGRAM + "wheelhouse/"
SOURCE = "source.tar"
CONFIG = "config/"
SITE = "site/ci.site.yaml"
CA_BUNDLE = "site/ca-bundle.pem"
IMAGES = "images/"
VERSION: Literal[1] = 1  # of the document; other versions are refused
WHEELS = "wheels/"  # <platform>/*.whl: wheels that its stages install


class BundleModel(BaseModel):
    """Base of the document and its parts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Member(BundleModel):
    """One file of the bundle."""

    sha256: str
    size: int


class BundledImage(BundleModel):
    """The image of one platform, as ``docker save`` writes it, compressed."""

    member: str
    tag: str
    id: str
    layers: tuple[str, ...]
    size: int  # bytes in an engine


class BundleDocument(BundleModel):
    """The contents of a bundle, and their origin."""

    version: Literal[1]
    project: str
    commit: str | None
    dirty: bool
    created_at: datetime
    python: str  # version for the program's wheels: 3.11
    machine: str
    config: str  # source/... or config/...
    images: dict[str, BundledImage]
    members: dict[str, Member]
    left_out: tuple[str, ...]
    lineage: Lineage = NO_LINEAGE  # of the commit
    subfolder: WorkspacePath = "."  # of its sources, in which the stages run
    host_platforms: tuple[str, ...] = ()  # have no image, and run on the host engine: a kit's
