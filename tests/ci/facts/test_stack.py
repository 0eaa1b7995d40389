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
        (
            {"engine": {"image": {"base_pinned": f"debian@{DIGESTS[0]}"}}},
            {"engine": {"image": {"base_pinned": f"debian@{DIGESTS[1]}"}}},
            [f"base image digest: debian@sha256:{'a' * 12} -> debian@sha256:{'b' * 12}"],
        ),
        (
            {"engine": {"image": {"base_pinned": f"debian@{DIGESTS[0]}"}}},
            {"engine": {"image": {"base_pinned": f"mirror/debian@{DIGESTS[0]}"}}},
            [],
        ),
        (
            {"sdk": {"cuda": "13.0.1"}},
            {"sdk": {"cuda": "13.0.2", "nvcc": "13.0"}},
            ["SDK cuda: 13.0.1 -> 13.0.2", "SDK nvcc: none -> 13.0"],
        ),
        ({}, {"sdk": {"cuda": "13.0.2"}}, []),
        (
            {"torch_builds": {"torch": {"version": "2.13.0", "git_version": "abc"}}},
            {"torch_builds": {"torch": {"version": "2.13.0", "git_version": "def"}}},
            ["build of torch: git_version: abc -> def"],
        ),
        (
            {"libraries": {"libv.so.1": {"file": "libv.so.1.2", "build_id": "a" * 40}}},
            {"libraries": {"libv.so.1": {"file": "libv.so.1.3", "build_id": "b" * 40}}},
            [
                "library libv.so.1: libv.so.1.2 (build aaaaaaaaaaaa) ->"
                " libv.so.1.3 (build bbbbbbbbbbbb)"
            ],
        ),
        (
            {"libraries": {"libv.so.1": {"symbols": 7, "symbols_sha256": "a"}}},
            {"libraries": {"libv.so.1": {"symbols": 9, "symbols_sha256": "b"}}},
            ["symbols needed of libv.so.1: 7 -> 9"],
        ),
        (
            {"packages": {"A.b": "1"}, "origins": {"a-b": {"sha256": "a" * 64}}},
            {"packages": {"A.b": "1"}, "origins": {"a-b": {"sha256": "b" * 64}}},
            [f"A.b 1, sha256: {'a' * 12} -> {'b' * 12}"],
        ),
        (
            {"packages": {"six": "1"}, "origins": {"six": {"url": "x", "sha256": "a" * 64}}},
            {"packages": {"six": "1"}, "origins": {"six": {"url": "y", "sha256": "a" * 64}}},
            [],
        ),
        ({"libraries": {"libv.so.1": 3}}, {"libraries": {"libv.so.1": [4]}}, []),
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
    differs = "differs beside the sources:\n  numpy changed: 2.4.5 -> 2.4.6\n"
    assert differs in shown
    assert shown.index(differs) < shown.index("environment: ")
    _, page = project.compare(*project.runs, "--format", "markdown")
    assert "cpu differs beside the sources:" in page
    assert page.index("numpy changed") < page.index("| Platform")
    _, document = project.compare(*project.runs, "--format", "json")
    [platform] = json.loads(document)["platforms"]
    assert platform["stack"] == [{"component": "numpy", "before": "2.4.5", "after": "2.4.6"}]


def test_many_differences_are_counted(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    for version in ("1", "2"):
        environment = {**ENVIRONMENT, "packages": {f"p{n:02}": version for n in range(20)}}
        project.run(project.commit(), result(environment=environment))
    shown = project.compare(*project.runs)[1]
    assert "p11 changed: 1 -> 2\n  and 8 more: --format json shows all\n" in shown
