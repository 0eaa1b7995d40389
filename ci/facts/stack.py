"""The stack of a result: everything beside the sources that decides it, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ci.facts.environment_key import NONE, ComponentChange, environment_key
from ci.facts.files import read_text_file
from ci.model.results import PlatformResult
from ci.protocol.agent_files import SYMBOLS
from ci.util.lines import parse_object
from ci.util.text import join_names

_DIGITS = 19  # of a digest with its `sha256:`, as Docker shows it
LARGEST_SYMBOLS = 1 << 26  # bytes of a file; that of this project has 500,000
# What no environment key has, since equal machines and rebuilt images share one history.
_FACTS = {
    "image digest": ("digest", "engine", "image"),
    "base image digest": ("base_pinned", "engine", "image"),
    "engine version": ("version", "engine"),
    "kernel": ("kernel", "machine"),
    "operating system": ("os", "machine"),
}
_OF_FILE = ("sha256", "commit", "url")  # what identifies the origin of a package, the best first


def stack_changes(
    before: PlatformResult,
    after: PlatformResult,
    folders: Sequence[Path | None] = (None, None),
) -> list[ComponentChange]:
    """List what differs between the stacks of two results, packages last.

    ``folders`` are those of their ``results.json``; ``None``: which symbols differ is unknown.
    """
    keys = environment_key(after).changes(environment_key(before))
    return [
        *keys,
        *_fact_changes(before, after),
        *_part_changes("SDK", *(side.facts("sdk") for side in (before, after))),
        *_torch_changes(before, after),
        *_library_changes(before, after, folders),
        *_package_changes(before, after),
    ]


def _fact_changes(before: PlatformResult, after: PlatformResult) -> Iterator[ComponentChange]:
    for component, (name, *sections) in _FACTS.items():
        then, now = (side.facts(*sections).get(name) for side in (before, after))
        if then and now and _content(then) != _content(now):  # otherwise it was not recorded
            yield ComponentChange(component, _short(then), _short(now))


def _content(value: object) -> str:
    """The digest of an image, which several registries may have."""
    return str(value).rpartition("@")[2]


def _short(value: object) -> str:
    """Shorten a digest, also one at the end of a reference."""
    name, mark, digest = str(value).rpartition("sha256:")
    return f"{name}{(mark + digest)[:_DIGITS]}" if mark else digest


def _part_changes(
    whole: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[ComponentChange]:
    """Yield the changed parts of something that both runs recorded."""
    if then and now:  # a run that recorded one recorded all
        for name in sorted({*then, *now}, key=str.lower):
            sides = (str(side.get(name, NONE)) for side in (then, now))
            change = ComponentChange(f"{whole} {name}".strip(), *sides)
            if change.before != change.after:
                yield change


def _torch_changes(before: PlatformResult, after: PlatformResult) -> Iterator[ComponentChange]:
    """Yield how the builds of torch and its extensions differ."""
    for name in before.facts("torch_builds"):
        builds = (side.facts("torch_builds", name) for side in (before, after))
        yield from _part_changes(f"build of {name}:", *builds)


def _library_changes(
    before: PlatformResult, after: PlatformResult, folders: Sequence[Path | None]
) -> Iterator[ComponentChange]:
    """Yield the libraries that the project is bound to, if their files or symbols changed."""
    sides = before, after
    then, now = ({**side.facts("libraries")} for side in sides)
    yield from _part_changes(
        "library", *({name: _file(it) for name, it in side.items()} for side in (then, now))
    )
    symbols = [_symbols(*it) for it in zip(sides, folders, strict=True)]
    for name in sorted(then.keys() & now.keys()):
        first, second = (_part(side[name]) for side in (then, now))
        if first.get("symbols_sha256") != second.get("symbols_sha256"):
            lists = [set(side.get(name, ())) for side in symbols]
            text = f"{second.get('symbols')}{_difference(*lists)}"
            yield ComponentChange(f"symbols needed of {name}", str(first.get("symbols")), text)


def _part(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _file(library: object) -> str:
    """``libcudart.so.13.0.96 (build 0123456789ab)``."""
    facts = _part(library)
    build = str(facts.get("build_id") or facts.get("sha256") or "unknown")
    return f"{facts.get('file')} (build {build[:12]})"


def _symbols(result: PlatformResult, folder: Path | None) -> Mapping[str, Sequence[str]]:
    """Read the symbols that a run's project needed of each library; empty if they are not here."""
    text = read_text_file(folder / result.platform / SYMBOLS, LARGEST_SYMBOLS) if folder else None
    try:
        libraries = parse_object(text or "")
    except ValueError:
        return {}
    return {name: [*map(str, it)] for name, it in libraries.items() if isinstance(it, list)}


def _difference(then: set[str], now: set[str]) -> str:
    """`` (added: a, b; removed: c)``; empty if a side is unknown."""
    found = {"added": sorted(now - then), "removed": sorted(then - now)}
    shown = [f"{what}: {join_names(names)}" for what, names in found.items() if names]
    return f" ({'; '.join(shown)})" if then and now and shown else ""


def _package_changes(before: PlatformResult, after: PlatformResult) -> Iterator[ComponentChange]:
    """Yield other versions, and other files of one version."""
    then, now = before.facts("packages"), after.facts("packages")
    changed = [*_part_changes("", then, now)]
    yield from changed
    tested = {it.sha256 for side in (before, after) for it in side.distributions}
    for name in sorted(then.keys() & now.keys() - {it.component for it in changed}, key=str.lower):
        origins = [side.facts("origins", canonicalize_name(name)) for side in (before, after)]
        what = next((it for it in _OF_FILE if all(side.get(it) for side in origins)), "url")
        first, second = (str(side.get(what, "")) for side in origins)
        if first and second and first != second and not tested & {first, second}:
            yield ComponentChange(f"{name} {now[name]}, {what}", first[:12], second[:12])
