"""What may be removed, and the choice among it: pure, whatever the items are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from rich.filesize import decimal


class Kind(StrEnum):
    """What an item is."""

    CONTAINER = "container"
    IMAGE = "image"
    CACHE = "compiler cache"
    RESULTS = "results"
    WORK_FOLDER = "work folder"


# What runs share and make again when it is gone. The rest is of one run each.
BOUNDED = (Kind.IMAGE, Kind.CACHE)


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something of ours on this machine or on an engine.

    Attributes:
        used: when it was last used, as far as anybody knows
        needed: why it must stay, whatever its age; ``None``: it need not
        remove: removes it; raises what its engine or the disk has against it
    """

    kind: Kind
    name: str
    size_bytes: int
    used: datetime
    needed: str | None = None
    remove: Callable[[], None] = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How old, and of each bounded kind how much, may stay."""

    age: timedelta
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What becomes of an item, and why."""

    item: Item
    removed: bool
    reason: str


def choose(items: Iterable[Item], limits: Limits, now: datetime) -> list[Choice]:
    """Decide on every item; the longest unused of each kind come first."""
    ordered = sorted(items, key=lambda item: item.used)
    return [
        choice
        for kind in Kind
        for choice in _of_one_kind(
            kind, [item for item in ordered if item.kind is kind], limits, now
        )
    ]


def _of_one_kind(kind: Kind, items: Sequence[Item], limits: Limits, now: datetime) -> list[Choice]:
    choices = []
    rest = sum(item.size_bytes for item in items)
    for item in items:
        too_much = kind in BOUNDED and rest > limits.size_bytes
        choice = _choice(item, limits, now, too_much=too_much)
        rest -= item.size_bytes if choice.removed else 0
        choices.append(choice)
    return choices


def _choice(item: Item, limits: Limits, now: datetime, *, too_much: bool) -> Choice:
    days = limits.age / timedelta(days=1)
    if item.needed is not None:
        return Choice(item=item, removed=False, reason=item.needed)
    if now - item.used >= limits.age:
        return Choice(item=item, removed=True, reason=f"not used for {days:g} days")
    if too_much:
        most = (
            f"more than {decimal(limits.size_bytes)} of this kind, and this is the longest unused"
        )
        return Choice(item=item, removed=True, reason=most)
    return Choice(item=item, removed=False, reason=f"used within {days:g} days")
