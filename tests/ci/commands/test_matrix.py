"""``python -m ci matrix``: the platforms that have a runner, as each CI reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ci import cli
from ci.errors import ExitCode

Output = pytest.CaptureFixture[str]

CONFIG = "project: tiny\nplatforms: {cpu: {}, ascend: {label: NPU}, moore: {}}\n"
SITE = """\
platforms:
  moore: {runner_labels: [self-hosted, moore.lab:2]}
  ascend: {runner_labels: [npu]}
  cpu: {retries: 1}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ci.yaml").write_text(CONFIG)
    (tmp_path / "ci.site.yaml").write_text(SITE)
    return tmp_path / "ci.yaml"


def matrix(config: Path, capsys: Output, form: str, *, notice: str = "") -> str:
    assert cli.main(["matrix", "--config", str(config), "--format", form]) == ExitCode.PASSED
    shown = capsys.readouterr()
    assert shown.err == notice
    return shown.out


def test_platforms_with_labels_in_the_order_of_the_configuration(
    config: Path, capsys: Output
) -> None:
    assert json.loads(matrix(config, capsys, "json")) == [
        {"platform": "ascend", "title": "NPU", "labels": ["npu"]},
        {"platform": "moore", "title": "Moore", "labels": ["self-hosted", "moore.lab:2"]},
    ]


def test_github_gets_a_matrix_on_one_line(config: Path, capsys: Output) -> None:
    text = matrix(config, capsys, "github")
    assert text.count("\n") == 1
    [first, second] = json.loads(text)["include"]
    assert first == {"platform": "ascend", "title": "NPU", "runner": ["npu"]}
    assert second["runner"] == ["self-hosted", "moore.lab:2"]


def test_gitlab_gets_jobs_that_extend_a_template(config: Path, capsys: Output) -> None:
    jobs = yaml.safe_load(matrix(config, capsys, "gitlab"))
    assert [*jobs] == ["variables", "build-ascend", "build-moore"]
    assert jobs["variables"] == {"PLATFORMS": "ascend,moore"}
    assert jobs["build-moore"] == {
        "extends": ".platform",
        "tags": ["self-hosted", "moore.lab:2"],
        "variables": {"PLATFORM": "moore"},
    }


def test_jenkins_gets_a_line_with_an_expression(config: Path, capsys: Output) -> None:
    text = matrix(config, capsys, "jenkins")
    assert text == "ascend\tnpu\nmoore\tself-hosted && moore.lab:2\n"


@pytest.mark.parametrize(
    ("form", "text"), [("json", "[]\n"), ("github", '{"include": []}\n'), ("jenkins", "")]
)
def test_a_site_without_runners(config: Path, capsys: Output, form: str, text: str) -> None:
    site = config.parent / "ci.site.yaml"
    site.unlink()
    notice = f"no platform has `runner_labels` in {site}: there is nothing to run\n"
    assert matrix(config, capsys, form, notice=notice) == text


@pytest.mark.parametrize("label", ["a b", "", "a&&b", "-a", '"a"'])
def test_other_labels_are_refused(config: Path, capsys: Output, label: str) -> None:
    site = {"platforms": {"moore": {"runner_labels": [label]}}}
    (config.parent / "ci.site.yaml").write_text(json.dumps(site))
    assert cli.main(["matrix", "--config", str(config)]) == ExitCode.USAGE
    assert "platforms.moore.runner_labels.0: got " in capsys.readouterr().err
