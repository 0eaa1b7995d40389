"""A secret that reaches the code under test is in nothing that is shown or kept."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from conftest import engine_or_skip

ROOT = Path(__file__).resolve().parents[2]
VALUE = "pl4nted/secret & <more>"
FORMS = (
    VALUE,
    quote(VALUE),
    quote(VALUE, safe=""),
    "pl4nted/secret &amp; &lt;more",
    base64.b64encode(VALUE.encode()).decode().rstrip("="),
)

CONFIG = f"""
project: leaky
platforms:
  cpu:
    environment: {{GREETING: good morning, KEY: {VALUE!r}}}
network:
  http_proxy: http://me:of-the-proxy@127.0.0.1:9
stages:
  - {{name: print, command: python leak.py}}
  - {{name: pytest, command: python -m pytest, kind: pytest}}
artifacts:
  packed: packed
  leaked.txt: leaked.txt
"""
LEAK = """
import base64, os, pathlib, urllib.parse

key = os.environ["KEY"]
text = "\\n".join(
    [key, urllib.parse.quote(key), repr(key), base64.b64encode(key.encode()).decode()]
)
print(text)
assert "@" in os.environ["HTTP_PROXY"]  # a stage that may download packages
pathlib.Path("leaked.txt").write_text(text)
pathlib.Path("packed").mkdir()
pathlib.Path("packed", "leaked.txt").write_text(text)
"""
TEST = """
import os

import pytest


@pytest.mark.parametrize("key", [os.environ["KEY"]])
def test_key(key):
    print(key)
    assert key == "another", key


def test_proxy():
    assert os.environ["HTTP_PROXY"] == "http://127.0.0.1:9"
"""


@pytest.mark.parametrize("engine", ["host", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_planted_secret_is_nowhere(engine: str, tmp_path: Path) -> None:
    engine_or_skip(engine).close()
    project, results = tmp_path / "project", tmp_path / "results"
    files = {"ci.yaml": CONFIG, "leak.py": LEAK, "test_key.py": TEST}
    project.mkdir()
    for name, text in files.items():
        (project / name).write_text(text, encoding="utf-8")
    (tmp_path / "ci.site.yaml").write_text("redact: [LAB_KEY]\n", encoding="utf-8")
    options = ["--engine", engine, "--source", project, "--results", results]
    finished = subprocess.run(
        [sys.executable, "-m", "ci", "run", "cpu", "--config", project / "ci.yaml", *options],
        cwd=ROOT,
        env={**os.environ, "LAB_KEY": VALUE, "INFINI_CI_SITE": str(tmp_path / "ci.site.yaml")},
        capture_output=True,
        text=True,
        check=False,
    )
    shown = finished.stdout + finished.stderr
    assert finished.returncode == 1, shown  # the test fails
    assert "***" in shown
    [row] = json.loads((results / "latest" / "results.json").read_text())["platforms"]
    assert (row["pytest"]["passed"], row["pytest"]["failed"]) == (1, 1)
    notes = "\n".join(row["notes"])
    assert "a secret value was hidden in junit.xml" in notes
    assert "packed.tar.gz was removed from the results" in notes
    content = {"the output": shown.encode()}
    for path in results.rglob("*"):
        if path.is_file():
            read = gzip.open if path.suffix == ".gz" else Path.open
            with read(path, "rb") as file:
                content[str(path)] = file.read()
    assert {"print.log", "pytest.jsonl", "junit.xml", "leaked.txt", "ci.db"} <= {
        Path(name).name for name in content
    }
    found = [
        (name, form) for name, text in content.items() for form in FORMS if form.encode() in text
    ]
    assert found == []
