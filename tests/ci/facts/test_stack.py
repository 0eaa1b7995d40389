"""What differs between the stacks of two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.facts.stack import stack_changes
from tests.ci.published import PUBLISHED, platform_result
from tests.ci.stored_history import ENVIRONMENT, Project, result

DIGESTS = "sha256:" + "a" * 64, "sha256:" + "b" * 64


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    first, second = (
        platform_result("cpu", PUBLISHED[0][1:], environment=it) for it in (before, after)
    )
    return [f"{it.component}: {it.before} -> {it.after}" for it in stack_changes(first, second)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"packages": {"a": "1"}}, {"packages": {"a": "1"}}, []),
        (
            {"packages": {"six": "1.0", "B": "2"}},
            {"packages": {"six": "1.1", "a": "1"}},
            ["a: none -> 1", "B: 2 -> none", "six: 1.0 -> 1.1"],
        ),
        ({}, {"packages": {"six": "1.0"}}, []),
        ({"machine": {"kernel": "6.1"}}, {"machine": {"kernel": "6.2"}}, ["kernel: 6.1 -> 6.2"]),
        ({"machine": {"kernel": "6.1"}}, {"machine": {}}, []),
        ({"torch": "2.13.0"}, {"torch": "2.14.1"}, ["torch: torch 2.13.0 -> torch 2.14.1"]),
        (
            {"engine": {"version": "28.1", "image": {"digest": DIGESTS[0]}}},
            {"engine": {"version": "28.2", "image": {"digest": DIGESTS[1]}}},
            [
                f"image digest: sha256:{'a' * 12} -> sha256:{'b' * 12}",
                "engine version: 28.1 -> 28.2",
            ],
        ),
    ],
)
def test_a_stack_differs_in_what_both_runs_recorded(
    before: dict[str, Any], after: dict[str, Any], expected: list[str]
) -> None:
    assert changes(before, after) == expected


def test_a_comparison_begins_with_what_differs_beside_the_sources(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    for version in ("2.4.5", "2.4.6"):
        environment = {**ENVIRONMENT, "packages": {"numpy": version}}
        project.run(project.commit(), result(environment=environment))
    code, shown = project.compare(*project.runs)
    assert code == 0
    assert "also differs: numpy 2.4.5 -> 2.4.6" in shown
    assert shown.index("also differs") < shown.index("environment: ")
    _, document = project.compare(*project.runs, "--format", "json")
    [platform] = json.loads(document)["platforms"]
    assert platform["stack"] == [{"component": "numpy", "before": "2.4.5", "after": "2.4.6"}]
