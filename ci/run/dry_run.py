"""The plan of a platform, as ``run --dry-run`` prints it: for people, and as JSON."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from ci.engines import Engine
from ci.model.plan import RunPlan
from ci.protocol.job import StageNetwork, StagePlan
from ci.util.text import mask_credentials

WIDTH = 80
NOT_SHOWN = ("isolated", "only", "hold", "seconds")  # of a stage: what follows from others


def plan_document(plan: RunPlan, engine: Engine) -> dict[str, Any]:
    """Return what a run would do, without the passwords."""
    devices = plan.devices
    document = {
        "title": plan.title,
        "platform": plan.platform,
        "engine": engine.name,
        "trust": plan.trust,
        "selected": plan.selected,
        "source": str(plan.source),
        "results": str(plan.results),
        **engine.describe(plan),
        "credentials": [*plan.network.credentials],  # the names of the variables
        "devices": devices and {it: vars(devices)[it] for it in vars(devices) if it != "facts"},
        "cache": plan.cache and vars(plan.cache),
        "stages": [_stage(stage, plan, engine) for stage in plan.stages],
        "artifacts": {it.name: it.path for it in plan.artifacts},
        "distributions": plan.distributions and plan.distributions.folder,
        "given": plan.given and {name: str(it) for name, it in vars(plan.given).items()},
    }
    masked: dict[str, Any] = _masked(document)
    return masked


def _stage(stage: StagePlan, plan: RunPlan, engine: Engine) -> dict[str, Any]:
    isolated = stage.isolated and engine.capabilities.isolates_network
    return {
        **{name: value for name, value in vars(stage).items() if name not in NOT_SHOWN},
        "network": StageNetwork.NONE if isolated else StageNetwork.FULL,
        "benchmarks": stage.benchmarks or None,
        "device": stage.device and plan.devices is not None,
        "credentials": stage.credentials and bool(plan.network.credentials),
    }


def _masked(value: Any) -> Any:
    """Return a value as JSON has it, with the passwords in its texts hidden."""
    match value:
        case str():
            return mask_credentials(value)
        case Mapping():
            return {name: _masked(item) for name, item in value.items()}
        case list() | tuple():
            return [_masked(item) for item in value]
    return value


def plan_text(document: Mapping[str, Any]) -> str:
    """Return a plan as text, without what is empty."""
    body = {name: document[name] for name in document if name not in ("title", "engine")}
    lines = (line for name, value in body.items() for line in _lines(name, value, ""))
    return "\n".join([f"# {document['title']}, {document['engine']} engine", *lines])


def _lines(name: str, value: Any, indent: str) -> Iterator[str]:
    if value in (None, False, [], {}):
        return
    further = f"{indent}  "
    match value:
        case dict():
            yield f"{indent}{name}:"
            for key, item in value.items():
                yield from _lines(key, item, further)
        case [{"name": _}, *_]:
            yield f"{indent}{name}:"
            for item in value:
                rest = {key: item[key] for key in item if key != "name"}
                yield from _lines(item["name"], rest, further)
        case list() if name == "command":  # as it can be copied
            first, *more = shlex.join(value).splitlines()
            yield f"{indent}{name}: {first}"
            yield from (further + line for line in more)
        case _:
            items = value if isinstance(value, list) else [value]
            shown = ", ".join(it if isinstance(it, str) else json.dumps(it) for it in items)
            yield from textwrap.wrap(
                f"{name}: {shown}",
                WIDTH,
                initial_indent=indent,
                subsequent_indent=further,
                break_long_words=False,
                break_on_hyphens=False,
            )
