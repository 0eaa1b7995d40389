"""Which runs stay in the store: ``retention:`` in ``ci.yaml``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from ci.plan.values import Model


class RetentionConfig(Model):
    """Which runs ``gc`` removes from the store. Runs that a decision about a release, an
    attestation, an acceptance or an alarm names always stay."""

    days: Annotated[float, Field(gt=0, le=36_500)]
    """Runs that began at most this many days ago stay."""
    newest: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The newest runs of each platform on each branch stay, at any age: so many of them."""
    tags: Annotated[str, StringConstraints(pattern=r"^[\w*?\[\]./+-]{1,64}$")] = "*"
    """Pattern of tags, such as ``v*``: runs of their commits stay."""
