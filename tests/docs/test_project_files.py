"""What a project of this kind has beside its code: it is there, and agrees with the rest."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from typing import Any

import pytest
import yaml
from packaging.version import Version

from tests.docs.reference import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SAMPLES = "tests/ops/samples/samples.zip"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_binary_is_committed_but_our_images_and_samples() -> None:
    # A wheel that `pip download` had left was committed with a merge.
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = [name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()]
    binary = {name for name in names if b"\0" in (ROOT / name).read_bytes()}
    assert SAMPLES in binary
    assert {it for it in binary if not it.startswith("docs/images/")} == {SAMPLES}


def test_modules_of_one_pytest_call_have_their_own_names() -> None:
    # Two of one name, of which each call of `nox -s tests` saw one, failed only in `.ci/run`.
    paths = PROJECT["tool"]["pytest"]["ini_options"]["testpaths"]
    found = [path for name in paths for path in sorted((ROOT / name).rglob("test_*.py"))]
    names = Counter(path.stem for path in found)
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_hooks_have_the_versions_of_the_lint_session() -> None:
    [local] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    pinned = {each for hook in local["hooks"] for each in hook["additional_dependencies"]}
    assert pinned
    assert [each for each in pinned if each not in PROJECT["dependency-groups"]["lint"]] == []


def test_the_changelog_has_no_version_twice_and_none_to_come() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert found[0] == "Unreleased"
    versions = [Version(it) for it in (PROJECT["project"]["version"], *found[1:])]
    assert versions == sorted(versions, reverse=True)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_a_form_asks_each_question_once(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / name).read_text())
    questions = [field["id"] for field in form["body"]]
    assert len(set(questions)) == len(questions) > 1
