"""The order of stages, and the measures that contain others. Pure."""

from __future__ import annotations

from ci.facts.measures import IMAGE, TOTAL, Quantity, is_benchmark, measure_key, stage_and_quantity

# Where a project builds: its wheel and then installs that, or both in one stage.
_BUILDS = ("wheel", "install")
_PARTS_OF_BUILDS = ("generate", "configure", "compile", "link")
# In order of execution; other stages follow, then the total.
_ORDER = (IMAGE, "sync", *_PARTS_OF_BUILDS, *_BUILDS)
_PLACES = {**{stage: place for place, stage in enumerate(_ORDER)}, TOTAL: len(_ORDER) + 1}


def place_of(name: str) -> tuple[bool, int, str, int, str]:
    """The sort key of a measure: stages in order of execution, the total, then benchmarks."""
    stage, quantity = stage_and_quantity(name)
    place = _PLACES.get(stage, len(_ORDER))
    return is_benchmark(name), place, stage, quantity.place, quantity.label


def stages_around(stage: str) -> tuple[str, ...]:
    """The stage, and those that it may be a part of."""
    return (stage, *_BUILDS) if stage in _PARTS_OF_BUILDS else (stage,)


def containing_measures(name: str) -> set[str]:
    """The time measures that include the time of a stage."""
    stage, quantity = stage_and_quantity(name)
    if not quantity.is_time or stage in (TOTAL, IMAGE):
        return set()
    stages = (*stages_around(stage)[1:], TOTAL)
    own = {measure_key(stage, Quantity.CPU)} - {name}
    return {measure_key(it, time) for it in stages for time in (Quantity.WALL, Quantity.CPU)} | own
