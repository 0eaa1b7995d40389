"""Accepted rises of build and test cost, as a project keeps them in ``ci-accepted.yaml``."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ci.facts.measures import (
    AnyQuantity,
    Benchmark,
    Quantity,
    measure_key,
    read_quantity,
    stage_and_quantity,
)
from ci.model.fields import CommitId
from ci.model.results import Direction

Name = Annotated[str, StringConstraints(min_length=1, max_length=64)]  # as the store's columns
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
"""At most ten pages: a reason is a sentence."""
SHORT_COMMIT = 7
"""Digits of a commit that name it, as everywhere on the command line."""


def _read_quantity(value: object) -> AnyQuantity:
    if isinstance(value, Quantity | Benchmark):
        return value
    try:
        return read_quantity(str(value))
    except ValueError:
        known = [*map(str, Quantity)]
        names = ", ".join(f"'{it}'" for it in known)
        what = f"one of {names}, or 'direction:unit:name' of a benchmark"
        raise PydanticCustomError("expected", what, {"known": known}) from None


MeasuredQuantity = Annotated[
    AnyQuantity,
    PlainValidator(_read_quantity),
    PlainSerializer(lambda it: it.value, return_type=str),
    WithJsonSchema({"type": "string"}),
]


class Acceptance(BaseModel):
    """An accepted rise of one quantity of a stage on one platform."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    platform: Name
    stage: Name
    quantity: MeasuredQuantity
    """Of a benchmark ``direction:unit:name``."""
    level: Annotated[float, Field(ge=0)]
    """The accepted level, in the unit of the quantity. A later level that is worse is another."""
    commit: CommitId | None = None
    """The first commit after the rise, as known when it was accepted."""
    run: Name | None = None
    """The first run after it, if no commit has all of its sources."""
    reason: Text
    who: Text
    date: datetime.date
    until: datetime.date | None = None
    """The last day on which the rise is accepted; ``None``: for good."""

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if self.commit is None and self.run is None:
            raise PydanticCustomError("expected", "a commit or a run, the first with the rise")
        return self

    @property
    def measure(self) -> str:
        return measure_key(self.stage, self.quantity)

    @property
    def since(self) -> str:
        """The first commit or run with the rise."""
        return self.commit or self.run or ""

    @property
    def place(self) -> tuple[str, str, str]:
        """What is accepted; a project accepts it once."""
        return self.platform, self.measure, self.since

    def begins_with(self, name: str) -> bool:
        """Whether the rise began with this run or commit; commits may be shortened."""
        short = len(name) >= SHORT_COMMIT and (self.commit or "").startswith(name)
        return short or name == self.run

    def covers(self, level: float, margin: float) -> bool:
        """Whether a level is no worse than the accepted one, within a relative margin."""
        if self.quantity.direction is Direction.HIGHER:
            return level >= self.level * (1 - margin)
        return level <= self.level * (1 + margin)

    def is_expired(self, today: datetime.date) -> bool:
        return self.until is not None and self.until < today


def split_expired(
    accepted: Iterable[Acceptance], today: datetime.date
) -> tuple[list[Acceptance], list[Acceptance]]:
    """Split acceptances into those that hold today and the expired ones."""
    known = [*accepted]
    expired = [it for it in known if it.is_expired(today)]
    return [it for it in known if not it.is_expired(today)], expired


def accept_level(measure: str, level: float, **fields: Any) -> Acceptance:
    """Accept a level of a measure, rounded to six digits: noise changes the third."""
    stage, quantity = stage_and_quantity(measure)
    return Acceptance(stage=stage, quantity=quantity, level=float(f"{level:.6g}"), **fields)


class AcceptedFile(BaseModel):
    """The content of ``ci-accepted.yaml``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    project: Name
    accepted: tuple[Acceptance, ...] = ()
