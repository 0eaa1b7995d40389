"""The stack of a result: everything beside the sources that decides it, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from ci.facts.environment_key import NONE, ComponentChange, environment_key
from ci.model.results import PlatformResult

_DIGITS = 19  # of a digest with its `sha256:`, as Docker shows it
# What no environment key has, since equal machines and rebuilt images share one history.
_FACTS = {
    "image digest": ("digest", "engine", "image"),
    "engine version": ("version", "engine"),
    "kernel": ("kernel", "machine"),
    "operating system": ("os", "machine"),
}


def stack_changes(before: PlatformResult, after: PlatformResult) -> list[ComponentChange]:
    """List what differs between the stacks of two results, packages last."""
    keys = environment_key(after).changes(environment_key(before))
    return [*keys, *_fact_changes(before, after), *_package_changes(before, after)]


def _fact_changes(before: PlatformResult, after: PlatformResult) -> Iterator[ComponentChange]:
    for component, (name, *sections) in _FACTS.items():
        then, now = (side.facts(*sections).get(name) for side in (before, after))
        if then and now and then != now:  # otherwise it was not recorded
            yield ComponentChange(component, _short(then), _short(now))


def _short(value: object) -> str:
    text = str(value)
    return text[:_DIGITS] if text.startswith("sha256:") else text


def _package_changes(before: PlatformResult, after: PlatformResult) -> Iterator[ComponentChange]:
    then, now = before.facts("packages"), after.facts("packages")
    if then and now:  # a run that recorded one recorded all
        for name in sorted({*then, *now}, key=str.lower):
            sides = (str(side.get(name, NONE)) for side in (then, now))
            change = ComponentChange(name, *sides)
            if change.before != change.after:
                yield change
