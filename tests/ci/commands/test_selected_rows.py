"""A run of selected operators is a row of its own, and never stands for the whole suite."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from ci.errors import ExitCode
from ci.facts.sentences import on_stages
from ci.model.outcomes import Outcome
from ci.model.results import PlatformResult, RunResult, selected_title
from ci.model.verdicts import Harness, Product
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import ENVIRONMENT, TESTS, Project, result
from tests.ci.written_site import FAILED, data, write

OVERLOADS = {f"test_a.py::test_it[{name}.out-float32-cpu-slot8]": name for name in ("abs", "add")}
WHOLE = {**TESTS, **dict.fromkeys(OVERLOADS, Outcome.PASSED)}
FEW = {**TESTS, **{test: Outcome.PASSED for test, name in OVERLOADS.items() if name == "add"}}
FULL_RUN = r"python -m ci run cpu --select all"


def selected(operators: str = "add*", **changes: Any) -> PlatformResult:
    environment = {**ENVIRONMENT, "selection": {"operators": operators, "overloads": 1, "of": 2}}
    return result(environment=environment, **changes)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(folder=tmp_path)


def both(project: Project, *, whole_first: bool) -> str:
    """Store a run of the whole suite and one of selected operators, both of one commit."""
    commit = project.commit()
    runs = [((result(),), WHOLE), ((selected(),), FEW)]
    for rows, outcomes in runs if whole_first else reversed(runs):
        project.run(commit, *rows, outcomes=outcomes)
    return commit


def report(project: Project, *words: str) -> tuple[int, str]:
    return project.ci("report", "--source", str(project.source), *words)


def labels(project: Project, *words: str) -> list[str]:
    _, text = report(project, *words, "--format", "json")
    return [it["label"] for it in json.loads(text)["platforms"]]


# The gate


@pytest.mark.parametrize(
    "words",
    [
        ("HEAD", "--expect", "cpu"),
        ("HEAD", "--expect", "cpu", "--format", "github"),
        ("HEAD",),
        ("latest",),
        (),
        ("run-000/cpu",),
    ],
    ids=lambda words: " ".join(words),
)
def test_selected_operators_do_not_satisfy_the_gate(
    project: Project, words: tuple[str, ...]
) -> None:
    project.run(project.commit(), selected(), outcomes=FEW)
    code, text = report(project, *words, "--check")
    assert code == ExitCode.INFRASTRUCTURE
    shown = " ".join(text.replace("\\", "").split())
    of = ("commit", "run")
    sentences = [on_stages.only_selected(it, ["run-000 (add*)"], FULL_RUN).text for it in of]
    assert any(it[1:] in shown for it in sentences)  # a table begins with a capital letter
    if "github" in words:
        assert "## tiny: not run on CPU; passed on cpu (selected add*)" in text.replace("\\", "")


def test_a_selected_run_alone_can_be_shown(project: Project) -> None:
    project.run(project.commit(), selected())
    code, text = report(project, "run-000", "--format", "json")
    assert code == ExitCode.PASSED
    [row] = json.loads(text)["platforms"]
    assert row["label"] == "cpu (selected add*)"
    assert labels(project, "run-000", "--expect", "cpu") == ["CPU", "cpu (selected add*)"]
    assert labels(project, "HEAD") == ["CPU", "cpu (selected add*)"]


@pytest.mark.parametrize("whole_first", [True, False])
def test_neither_run_hides_the_other(project: Project, *, whole_first: bool) -> None:
    both(project, whole_first=whole_first)
    code, text = report(project, "HEAD", "--expect", "cpu", "--check", "--format", "json")
    assert code == ExitCode.PASSED
    rows = json.loads(text)["platforms"]
    assert [it["label"] for it in rows] == ["cpu", "cpu (selected add*)"]
    code, text = report(project, "HEAD", "--format", "junit")
    suites = [(it.get("name"), it.get("tests")) for it in fromstring(text)]  # noqa: S314
    assert suites == [("tiny.cpu", "4"), ("tiny.cpu (selected add*)", "3")]
    code, text = report(project, "HEAD", "--format", "ctrf")
    found = {test["suite"][0] for test in json.loads(text)["results"]["tests"]}
    assert found == {"tiny on cpu", "tiny on cpu (selected add*)"}
    code, text = report(project, "HEAD", "--slowest")
    assert "cpu (selected add*)" in text


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (("failed whole", "passed"), ExitCode.PRODUCT_FAILURE),
        (("passed", "failed whole"), ExitCode.PRODUCT_FAILURE),
        (("passed whole", "failed"), ExitCode.PRODUCT_FAILURE),
        (("failed", "passed whole"), ExitCode.PASSED),  # which ran the same tests later
        (("passed whole", "failed", "passed"), ExitCode.PASSED),
        (("failed",), ExitCode.PRODUCT_FAILURE),
    ],
)
def test_the_code_of_both(project: Project, rows: tuple[str, ...], code: ExitCode) -> None:
    commit = project.commit()
    for row in rows:
        made = result() if "whole" in row else selected()
        changes = {"verdict": FAILED} if "failed" in row else {}
        project.run(commit, made.model_copy(update=changes))
    assert report(project, "HEAD", "--expect", "cpu", "--check")[0] == code


def test_the_commands_of_a_failure_name_its_own_run(project: Project) -> None:
    commit = project.commit()
    project.run(commit, result(verdict=FAILED))
    project.run(commit, selected())
    assert "python -m ci rerun run-000 cpu" in report(project, "HEAD")[1]


def test_other_selections_are_other_rows(project: Project) -> None:
    commit = project.commit()
    for operators in ("abs", "add*", "abs"):
        project.run(commit, selected(operators))
    project.run(commit, result(platform="ascend"), selected("mul"))
    names = [
        "CPU",
        *(f"cpu (selected {it})" for it in ("mul", "abs", "add*")),  # the newest first
        "ascend",
    ]
    assert labels(project, "HEAD") == names


def test_a_page_has_the_newest_selections(project: Project) -> None:
    commit = project.commit()
    project.run(commit, result())
    for number in range(12):
        project.run(commit, selected(f"op_{number}"))
    names = [f"cpu (selected op_{number})" for number in range(11, 1, -1)]
    assert labels(project, "HEAD") == ["cpu", *names]


def test_a_selected_platform_that_could_not_begin_is_no_whole_one(project: Project) -> None:
    commit = project.commit()
    verdict = made_verdict(Product.NOT_RUN, "no engine", harness=Harness.INFRASTRUCTURE)
    project.run(commit, result())
    project.run(commit, selected(verdict=verdict, pytest=None, built=None))
    assert labels(project, "HEAD") == ["cpu", "cpu (selected add*)"]


@pytest.mark.parametrize(
    ("label", "operators", "shown"),
    [
        ("CPU", "add*", "CPU (selected add*)"),
        ("NVIDIA (simulated device)", "add", "NVIDIA (simulated device; selected add)"),
        ("CPU", "a" * 5000, f"CPU (selected {'a' * 30}...)"),
    ],
)
def test_labels_of_older_results_gain_the_selection(
    project: Project, label: str, operators: str, shown: str
) -> None:
    row = {**selected(operators).model_dump(), "label": label}
    project.run(None, PlatformResult.model_validate(row))
    with project.open() as store:
        run = store.load()
    assert run.platforms[0].label == selected_title(label, operators) == shown
    again = RunResult.model_validate_json(run.to_json())
    assert again.platforms[0].label == shown


# Comparisons


def test_a_comparison_uses_the_whole_suite(project: Project) -> None:
    base = project.commit()
    project.run(base, result(), outcomes=WHOLE)
    head = both(project, whole_first=True)
    code, text = project.compare(base, head, "--fail-on", "regression")
    assert code == ExitCode.PASSED
    assert "run-001/cpu" in text
    assert "selected" not in text


def test_a_commit_with_selected_operators_alone_is_not_compared(project: Project) -> None:
    base = project.commit()
    project.run(base, result(), outcomes=WHOLE)
    head = project.commit()
    project.run(head, selected(), outcomes=FEW)
    code, message = project.compare(base, "HEAD")
    assert code == ExitCode.USAGE
    assert "are the same run, run-000: nothing to compare; run run-001 has only selected" in message
    assert f"git checkout {head[:12]} && {FULL_RUN}" in message
    # Its ancestor has a run of all operators.
    project.run(project.commit(), result(), outcomes=WHOLE)
    project.run(project.commit(), selected(), outcomes=FEW)
    code, text = project.compare(base, "HEAD")
    assert code == ExitCode.PASSED
    note = "HEAD has only selected operators on cpu, in run run-003: run run-002 is compared"
    assert note in " ".join(text.split())


def test_a_platform_of_several_with_selected_operators_is_named(project: Project) -> None:
    base = project.commit()
    project.run(base, result(), result(platform="ascend"))
    head = project.commit()
    project.run(head, selected(), result(platform="ascend"))
    code, text = project.compare(base, head)
    assert code == ExitCode.PASSED
    note = "has only selected operators on cpu, in run run-001: the platform is not compared"
    assert note in " ".join(text.split())
    assert "only base has cpu" in text


def test_no_page_says_no_regression_of_what_was_not_compared(project: Project) -> None:
    base = project.measure(result(), outcomes=WHOLE)
    project.branch("topic")
    project.measure(selected(), outcomes=FEW)
    _, text = report(project, "run-001", "--format", "github")
    assert "no regression in the operators that both have" in text
    assert "selected operators differ: base has all operators, head has add\\*" in text
    assert base


def test_selected_runs_are_compared_if_there_are_no_others(project: Project) -> None:
    commits = [project.commit() for _ in range(2)]
    for commit in commits:
        project.run(commit, selected())
    code, text = project.compare(*commits)
    assert code == ExitCode.PASSED
    assert "selected operators differ" not in text


# Series, contracts and capacity


def test_many_selected_runs_do_not_hide_the_history(project: Project) -> None:
    project.history([100.0] * 3)
    for _ in range(25):
        project.run(project.commit(), selected())
    _, text = project.ci("history", "cpu", "--format", "json")
    found = json.loads(text)
    environments = [it["key"]["selection"] for it in found["environments"]]
    assert environments == ["all operators", "add*"]
    assert found["environment_changes"] == []


def test_the_capacity_is_that_of_whole_suites(project: Project) -> None:
    pytest.importorskip("simpy")
    for _ in range(4):
        project.run(project.commit(), result(400.0))
    for _ in range(4):
        project.run(project.commit(), selected(install=1.0))
    _, text = project.ci("capacity", "cpu", "--commits-per-hour", "1", "--format", "json")
    assert json.loads(text)["recorded"] == {"cpu": 4}


def test_the_newest_whole_run_makes_the_contract(project: Project) -> None:
    both(project, whole_first=True)
    with project.open() as store:
        assert store.load(platform="cpu").run_id == "run-000"
        assert store.load().run_id == "run-001"


# The dashboard


def test_the_dashboard_has_a_row_for_the_selected_operators(project: Project) -> None:
    for _ in range(2):
        project.measure(result(), outcomes=WHOLE)
    project.measure(selected(), outcomes=FEW)
    _, site = write(project)
    page = unescape((site / "index.html").read_text(encoding="utf-8"))
    assert "Nothing: the newest run of every platform passed" in page  # no smaller suite
    headings = re.findall(r'<th scope="row"><a href="(.*?)">(.*?)</a>', page)
    assert [label for _, label in headings] == ["cpu", "cpu (selected add*)"]
    cells = re.findall(r'<td class="cell ?(\w*)"', page)
    assert cells == ["passed", "passed", "", "", "", "passed"]
    assert 'href="run-run-002.html#cpu"' in page
    whole = data(site, "platform-cpu")
    assert (len(whole["line"]), whole["counts"]["passed"]) == (2, [1, 1])
    few = data(site, Path(headings[1][0]).stem)
    assert (few["label"], len(few["line"])) == ("cpu (selected add*)", 1)
    operators = unescape((site / "operators.html").read_text(encoding="utf-8"))
    assert "2 overloads on 1 platform," in operators
    assert "run-001" in operators
    assert "run-002</td>" not in operators
    compared = unescape((site / "compare.html").read_text(encoding="utf-8"))
    assert "run-000 → run-001: no regression" in compared
    assert "→ run-002" not in compared


def test_the_dashboard_of_selected_runs_alone(project: Project) -> None:
    for _ in range(2):
        project.measure(selected(), outcomes=FEW)
    _, site = write(project)
    page = unescape((site / "index.html").read_text(encoding="utf-8"))
    assert "cpu (selected add*)" in page
    assert "no run of all operators, only of selected ones" in page
    operators = unescape((site / "operators.html").read_text(encoding="utf-8"))
    assert '<th scope="row">cpu (selected add*)</th>' in operators


def test_a_failing_selection_needs_attention_as_its_own_row(project: Project) -> None:
    project.measure(result(), outcomes=WHOLE)
    project.measure(selected(verdict=FAILED), outcomes=FEW)
    page = unescape((write(project)[1] / "index.html").read_text(encoding="utf-8"))
    assert '<li data-kind="failing" data-platforms="cpu:add*">' in page
