"""docs/kubernetes.md and docs/slurm.md: their examples are valid, and their commands exist."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate.utils import validate

from ci import cli
from ci.model.platforms import PLATFORMS
from ci.plan.load import load_site

DOCS = Path(__file__).resolve().parents[2] / "docs"
NAMES = ("kubernetes", "slurm")
PAGES = {name: (DOCS / f"{name}.md").read_text(encoding="utf-8") for name in NAMES}
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def documents(page: str) -> Iterator[Any]:
    for indent, language, text in FENCE.findall(PAGES[page]):
        if language == "yaml":
            lines = text.splitlines(keepends=True)
            yield from yaml.safe_load_all("".join(line[len(indent) :] for line in lines))


COMMANDS = re.findall(r"^python -m ci ([^>#\n|]+)", "\n".join(PAGES.values()), re.MULTILINE)


@pytest.mark.parametrize("words", COMMANDS)
def test_their_commands_exist(words: str) -> None:
    assert cli._parse_options(words.replace('"', "").split()).execute


@pytest.mark.parametrize("page", PAGES)
def test_their_site_files_are_valid(page: str, tmp_path: Path) -> None:
    [site] = [it for it in documents(page) if "kind" not in it]
    (tmp_path / "ci.site.yaml").write_text(yaml.safe_dump(site))
    assert load_site(tmp_path / "ci.site.yaml").platforms


def test_their_objects_match_the_published_schemas() -> None:
    found = [it for it in documents("kubernetes") if "kind" in it]
    assert [it["kind"] for it in found] == ["PersistentVolumeClaim", "Pod"]
    for it in found:
        assert validate(it, "1.37", strict=True)


def test_the_page_shows_every_resource() -> None:
    [command] = re.findall(r"^ *(grep .*)$", PAGES["kubernetes"], re.MULTILINE)
    shown = subprocess.run(
        ["bash", "-c", command], cwd=DOCS.parent, capture_output=True, text=True, check=True
    )
    known = [(name, it.devices.resource) for name, it in PLATFORMS.items() if it.devices]
    assert sorted(re.findall(r'/(\w+)\.toml:resource = "(.+)"\n', shown.stdout)) == sorted(known)
