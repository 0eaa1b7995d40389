"""``compare`` on times: it reports the changes planted in a history of runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ci.analysis.references import commit_places, order_runs, runs_to_read
from ci.errors import ExitCode
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.outcomes import Outcome
from ci.model.results import BuildResult
from ci.model.verdicts import Harness, Product
from ci.plan.accepted import write_accepted
from ci.store.rows import RunHead
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import (
    BEGIN,
    ENVIRONMENT,
    TESTS,
    Project,
    acceptance,
    expect,
    git,
    noisy,
    result,
)

STRICT = ("--fail-on", "suspected")
FIRM = ("--fail-on", "regression")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(folder=tmp_path)


@pytest.fixture(scope="module")
def main_and_topic(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """12 runs of ``main``, and a branch without a run."""
    project = Project(folder=tmp_path_factory.mktemp("topic"))
    project.history(noisy(100, 12))
    git(project.source, "checkout", "--quiet", "-b", "topic")
    project.commit()
    return project


@pytest.fixture
def topic(main_and_topic: Project, tmp_path: Path) -> Project:
    return main_and_topic.copy(tmp_path)


def head(project: Project) -> str:
    return git(project.source, "rev-parse", "HEAD")


def repeat(project: Project, installs: Sequence[float]) -> None:
    """Store runs of the commit that is checked out."""
    for seconds in installs:
        project.run(head(project), result(seconds))


def test_one_slow_run_is_suspected_and_more_are_a_regression(topic: Project) -> None:
    topic.run(head(topic), result(130))
    said = expect(topic.compare("main", "topic", *FIRM), "\nsuspected: install +30 s (+30 %)")
    assert "a suspected change was seen in one run only and may be a spike; 5 runs" in said
    assert "5 runs confirm it. Run it once more: git checkout " in said
    assert f"git checkout {head(topic)[:12]} && python -m ci run cpu --source " in said
    assert topic.compare("main", "topic", *STRICT)[0] == ExitCode.REGRESSION
    repeat(topic, noisy(130, 4, seed=2))
    said = expect(topic.compare("main", "topic", *FIRM), code=ExitCode.REGRESSION)
    assert "\nregression: install +3" in said
    between = f"between run-011 (commit {topic.main[:12]}) and run-01"
    assert f"{between}2 (commit {head(topic)[:12]})" in said
    assert "95 % interval +2" in said
    assert "one more: " not in said


def test_noise_is_reported_with_the_detectable_change(topic: Project) -> None:
    topic.run(head(topic), result(101))
    code, said = topic.compare("main", "topic", *STRICT)
    assert (code, "suspected" in said) == (ExitCode.PASSED, False)
    assert " within noise (detectable from " in said


def test_few_runs_are_reported(project: Project) -> None:
    project.history([100, 130])
    expect(project.compare("run-000", "run-001", *STRICT), "too little data")


def test_runs_of_other_branches_are_no_baseline(topic: Project) -> None:
    """Slow runs of another branch, meanwhile, change nothing."""
    topic.run(head(topic), result(130))
    other = [*noisy(130, 12, seed=3)]
    git(topic.source, "checkout", "--quiet", "--orphan", "other")
    topic.history(other)
    expect(topic.compare("main", "topic", *STRICT), "seen in 1 run", code=ExitCode.REGRESSION)


def test_an_improvement_and_the_way_back(topic: Project) -> None:
    repeat(topic, noisy(70, 6, seed=4))
    expect(topic.compare("main", "topic", *STRICT), "\nimprovement: install -3")
    said = expect(topic.compare("topic", "main", *FIRM), code=ExitCode.REGRESSION)
    assert "\nregression: install +" in said


@pytest.mark.parametrize("until", [None, date(2999, 12, 31), date(2026, 1, 3)])
def test_what_is_accepted_does_not_fail(topic: Project, until: date | None) -> None:
    repeat(topic, noisy(130, 6, seed=5))
    accepted = [
        acceptance(measure, 600, commit=head(topic), until=until)
        for measure in ("install.wall_s", "install.cpu_s", "total.wall_s", "total.cpu_s")
    ]
    topic.configure()
    write_accepted(topic.source, "tiny", accepted)
    code, said = topic.compare("main", "topic", *STRICT)
    if until == date(2026, 1, 3):  # it has ended
        assert (code, "accepted" in said) == (ExitCode.REGRESSION, False)
        return
    assert (code, "\naccepted: install +" in said) == (ExitCode.PASSED, True)
    assert re.search(r"; accepted on 20\d\d-\d\d-\d\d: a new backend\n", said)


def test_another_environment_is_reported_and_is_not_a_regression(topic: Project) -> None:
    newer = {**ENVIRONMENT, "compiler": "g++ 13.1"}
    topic.run(head(topic), result(200, environment=newer))
    said = expect(topic.compare("main", "topic", *STRICT))
    assert "differs beside the sources:\n  compiler changed: g++ 12.2 -> g++ 13.1\n" in said
    assert "times are not compared because the environments differ\n" in said
    # Once runs of BASE exist in that environment too, they are compared.
    topic.run(topic.main, result(100, environment=newer))
    topic.run(topic.main, result(100))
    said = topic.compare("main", "topic")[1]
    assert said.startswith("base  run-014/cpu (")
    assert "\ntimes of base: from run run-013, the newest run of BASE in this environment\n" in said
    assert "environments differ" not in said


def test_a_change_without_noise_is_reported_at_once(project: Project) -> None:
    for units, lines in ((15, 1000), (19, 1020), (19, 1024)):
        build = BuildResult(translation_units=units, generated_lines=lines)
        project.run(project.commit(), result(build=build))
    said = expect(project.compare("run-000", "run-001", *FIRM), code=ExitCode.REGRESSION)
    assert "\nregression: compile +4 units (+27 %)" in said
    assert re.search(r"generate +generated lines .* \+20 lines \(\+2.0 %\) +small rise ", said)
    code, said = project.compare("run-001", "run-002", *FIRM)
    assert (code, "generate +" in said) == (ExitCode.PASSED, False)
    assert re.search(r"generate +generated lines .* \+4 lines \(\+0.4 %\) +changed ", said)
    # Backwards as well: what fell by 2 % rises by 2 %.
    project.run(project.commit(), result(build=BuildResult(generated_lines=1003)))
    said = expect(project.compare("run-003", "run-002", *FIRM))
    assert "\nsmall rise: generate +21 lines (+2.1 %)" in said
    for lines in (0, 500):
        project.run(project.commit(), result(build=BuildResult(generated_lines=lines)))
    code, said = project.compare("run-004", "run-005", "--format", "json", *FIRM)
    assert (code, "Infinity" in said) == (ExitCode.REGRESSION, False)


def test_the_cause_is_reported(topic: Project) -> None:
    def build(*names: str) -> BuildDetails:
        units = [Unit(output=f"{n}.o", kind=UnitKind.COMPILE, seconds=7) for n in names]
        return BuildDetails(units=tuple(units))

    topic.run(topic.main, result(build=BuildResult(compile_s=70)), build=build("a", "b"))
    for number, compile_s in enumerate([70, 70, 70.5, 70, 71, 100, 101, 100, 100, 99]):
        names = ["a", "b"] if number < 5 else ["a", "b", "triton/c", "triton/d", "triton/e"]
        commit = topic.main if number < 5 else head(topic)
        row = result(compile_s + 30, build=BuildResult(compile_s=compile_s))
        topic.run(commit, row, build=build(*names))
    said = topic.compare("main", "topic")[1]
    new = "in 3 new units of the triton backend (c, d, e)"
    assert f"\nregression: compile +30 s (+43 %), 30 s of it {new}; " in said


def test_time_that_no_work_explains_is_suspected_only(topic: Project) -> None:
    for compile_s in (*noisy(70, 6), *noisy(100, 7)):
        commit = topic.main if compile_s < 80 else head(topic)
        topic.run(commit, result(build=BuildResult(compile_s=compile_s)))
    said = topic.compare("main", "topic")[1]
    assert "\nsuspected: compile +30 s (+43 %)" in said
    assert "seen in 7 runs; CPU seconds did not rise: " in said
    assert "one more: " not in said


def test_times_of_two_platforms_are_not_compared(project: Project) -> None:
    project.run(None, result(100), result(300, platform="ascend"))
    said = project.compare("latest/cpu", "latest/ascend")[1]
    assert "times are not compared: the platforms differ\n" in said


def test_json_and_markdown_say_the_same(topic: Project) -> None:
    evil = "test_a.py::test_<img src=x>[|`*]"
    for seconds in noisy(130, 6, seed=6):
        topic.run(head(topic), result(seconds), outcomes={evil: Outcome.FAILED})
    code, said = topic.compare("main", "topic", "--format", "json", *FIRM)
    document = json.loads(said)
    [platform] = document["platforms"]
    assert (code, document["schema_version"], document["regression"]) == (4, 2, True)
    assert platform["tests"]["counts"]["newly_failing"] == 1
    [failure] = platform["tests"]["changes"]["newly_failing"]
    assert (failure["test"], failure["message"]) == (evil, "assert <b>")
    measures = {it["measure"]: it for it in platform["times"]["measures"]}
    install = measures["install.wall_s"]
    [change] = install["changes"]
    assert (install["judgement"], change["confirmed"]) == ("regression", True)
    around = (change["last_run_before"]["run_id"], change["first_run_after"]["run_id"])
    assert around == ("run-011", "run-012")
    assert platform["times"]["environment"]["compiler"] == "g++ 12.2"
    shown = topic.compare("main", "topic", "--format", "markdown")[1]
    assert shown.startswith(
        "### main → topic: regression\n\n| Platform | What changed |\n|---|---|\n"
    )
    assert "| cpu | 2 tests vanished; 1 test newly failing; regression: install +3" in shown
    assert "\n* regression: install +3" in shown
    assert "<img" not in shown
    assert "test\\_&lt;img src=x&gt;\\[\\|\\`\\*\\] (failed: assert &lt;b&gt;)" in shown
    assert shown.endswith("\n</details>\n")


def test_what_cannot_be_judged_is_no_success(project: Project) -> None:
    commit = project.commit()
    lost = made_verdict(Product.INCOMPLETE, "the engine went away", harness=Harness.LOST)
    project.run(commit)
    project.run(commit, result(pytest=None, verdict=lost), outcomes={})
    assert project.compare("run-000", "run-001")[0] == ExitCode.PASSED
    said = expect(project.compare("run-000", "run-001", *FIRM), code=ExitCode.USAGE)
    assert "run-001/cpu has no tests: the engine went away\n" in said
    project.run(commit, result(verdict=lost))  # although all its tests passed before it
    said = expect(project.compare("run-000", "run-002", *FIRM), code=ExitCode.USAGE)
    assert "run-002/cpu is incomplete: the engine went away\n" in said


@pytest.mark.parametrize(
    ("product", "harness", "changes", "expected"),
    [
        # pytest exited with 2, a test ran on another device, or the contract is broken.
        (Product.FAILED, Harness.CLEAN, {}, "passed before, now failed: it went wrong"),
        (Product.INCOMPLETE, Harness.CLEAN, {}, "passed before, now incomplete: it went wrong"),
        (Product.INCOMPLETE, Harness.CRASHED, {}, "passed before, now incomplete: it went wrong"),
        (
            Product.INCOMPLETE,
            Harness.TIMED_OUT,
            {"pytest": None},
            "passed before, now incomplete",
        ),
        (Product.FAILED, Harness.CLEAN, {"built": False, "pytest": None}, "the build now fails"),
    ],
)
def test_a_worse_end_is_a_regression_without_a_failed_test(
    project: Project,
    product: Product,
    harness: Harness,
    changes: dict[str, Any],
    expected: str,
) -> None:
    commit = project.commit()
    verdict = made_verdict(product, "it went wrong", harness=harness)
    worse = result(verdict=verdict, **changes)
    outcomes = TESTS if worse.pytest else {}
    project.run(commit)
    project.run(commit, worse, outcomes=outcomes)
    said = expect(project.compare("run-000", "run-001", *FIRM), code=ExitCode.REGRESSION)
    assert f"\nregression: {expected}" in said
    assert expected in project.compare("run-000", "run-001", "--format=markdown")[1]
    assert json.loads(project.compare("run-000", "run-001", "--format=json")[1])["regression"]
    # A failure that both have is no regression; an incomplete result is never a success.
    is_complete = product is Product.FAILED and worse.pytest
    code = ExitCode.PASSED if is_complete else ExitCode.USAGE
    project.run(commit, worse, outcomes=outcomes)
    assert project.compare("run-001", "run-002", *FIRM)[0] == code
    project.run(commit)
    assert project.compare("run-002", "run-003", *FIRM)[0] == code


def test_all_platforms_that_both_have(project: Project) -> None:
    commit = project.commit()
    project.run(commit, result(), result(platform="ascend"), result(platform="moore"))
    project.run(commit, result(), result(platform="ascend"), outcomes={})
    said = expect(project.compare("run-000", "run-001", *FIRM), code=ExitCode.REGRESSION)
    assert said.startswith("run-000 -> run-001: 2 platforms\nonly base has moore\n")
    for name in ("ascend", "cpu"):
        assert f"\n{name}: 2 tests vanished\n" in said


def runs(count: int) -> list[RunHead]:
    return [
        RunHead(
            run_id=str(number),
            project="tiny",
            commit=f"c{number}",
            dirty=False,
            started_at=BEGIN + timedelta(hours=number),
            finished_at=BEGIN + timedelta(hours=number + 1),
            platforms=("cpu",),
            begun=("cpu",),
        )
        for number in range(count)
    ]


def ids(line: Sequence[RunHead]) -> list[str]:
    return [run.run_id for run in line]


def test_of_a_long_line_both_ends_and_a_part_of_what_is_between() -> None:
    whole = runs(3000)
    chosen = [*map(int, ids(runs_to_read(whole, whole[500], whole[2500])))]
    assert chosen[:101] == [*range(400, 501)]
    assert chosen[-21:] == [*range(2500, 2521)]
    between = chosen[101:-21]
    assert len(between) <= 400
    assert {later - run for run, later in pairwise(between)} == {5}
    assert [*map(int, ids(runs_to_read(whole, whole[2500], whole[500])))] == chosen
    assert runs_to_read(whole[:3], whole[1], whole[1]) == whole[:3]


def test_a_line_is_in_the_order_of_commits() -> None:
    first, second, stranger, again, own = runs(5)
    again = replace(again, commit=first.commit)  # an old commit, run once more
    changed = replace(own, run_id="changed", commit=second.commit, dirty=True)
    order = commit_places(
        [f"{second.commit}", f"{first.commit}"], [f"{own.commit}", f"{first.commit}"]
    )
    given = [first, second, stranger, again, own, changed]
    assert order_runs(given, order, first, own) == [first, again, second, own]
    assert order_runs(given, order, first, changed) == [first, again, second, changed, own]
    assert order_runs(given, None, first, own) == given
