"""Which platforms of two references are compared with each other. Pure."""

from __future__ import annotations

from ci.comparison.references import Runs
from ci.errors import UsageError
from ci.text import near_match


def pairs_of(base: Runs, head: Runs) -> list[tuple[str, str]]:
    """The platforms that both have; or those that are named, on either side or on both."""
    if base.platform or head.platform:
        return [(one_platform(base, head.platform), one_platform(head, base.platform))]
    shared = [(platform, platform) for platform in base.runs if platform in head.runs]
    if shared:
        return shared
    if len(base.runs) == len(head.runs) == 1:
        return [(next(iter(base.runs)), next(iter(head.runs)))]
    message = f"no platform is the same: {_has(base)}, {_has(head)}"
    remedy = (
        f"Name one of each: {base.name}/{next(iter(base.runs))} {head.name}/{next(iter(head.runs))}"
    )
    raise UsageError(message, remedy=remedy)


def one_platform(side: Runs, other: str | None) -> str:
    """The platform that is named, or the one that can be meant."""
    if side.platform is None and len(side.runs) == 1:
        return next(iter(side.runs))
    name = side.platform or other
    if name is None or name not in side.runs:
        wanted = f", not '{name}'{near_match(name, side.runs)}" if name else ": name one"
        remedy = f"{side.name}/{next(iter(side.runs))}"
        raise UsageError(f"{_has(side)}{wanted}", remedy=remedy)
    return name


def _has(side: Runs) -> str:
    kind = f"run {side.name}" if side.revision is None else side.name
    return f"{kind} has {', '.join(side.runs)}"
