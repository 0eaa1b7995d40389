"""What an image was made from, as its labels say, and why that is not what is wanted now."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ci.plan import BASE_IMAGE_INPUT, RunPlan

PLATFORM_LABEL = "infini-ci.platform"
BASE_LABEL = "infini-ci.base-image"  # the image that it was really built on
BASE_DIGEST_LABEL = "infini-ci.base-digest"
INPUTS_LABEL = "infini-ci.inputs"  # digests only: values may hold passwords

Labels = Mapping[str, str]


def image_labels(plan: RunPlan, base: str, base_digest: str) -> dict[str, str]:
    """Return what an image says about itself."""
    return {
        PLATFORM_LABEL: plan.platform,
        BASE_LABEL: base,
        BASE_DIGEST_LABEL: base_digest,
        INPUTS_LABEL: json.dumps(dict(plan.needed_image.inputs), sort_keys=True),
    }


def reason_to_build(plan: RunPlan, others: Iterable[Labels]) -> str:
    """Say what has changed since the most similar of the ``others``, images of the platform."""
    wanted = plan.needed_image.inputs
    made_from = [inputs for labels in others if (inputs := _inputs(labels))]
    if not made_from:
        return f"no image of platform {plan.platform} yet"
    changes = min((_changes(wanted, inputs) for inputs in made_from), key=len)
    return ", ".join(changes) or f"no image is tagged {plan.needed_image.tag}"


def _inputs(labels: Labels) -> Mapping[str, str]:
    inputs = json.loads(labels.get(INPUTS_LABEL, "{}"))
    return inputs if isinstance(inputs, dict) else {}


def _changes(wanted: Mapping[str, str], inputs: Mapping[str, str]) -> list[str]:
    names = sorted({*wanted, *inputs})
    return [
        _change(name, wanted.get(name), inputs.get(name))
        for name in names
        if wanted.get(name) != inputs.get(name)
    ]


def _change(name: str, wanted: str | None, before: str | None) -> str:
    if name == BASE_IMAGE_INPUT:
        return f"{name} is {wanted}, was {before}"
    if before is None:
        return f"{name} is new"
    return f"{name} changed" if wanted else f"{name} is gone"
