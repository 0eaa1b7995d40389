"""``python -m ci history`` on a store of generated runs: it reports the planted changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from ci.errors import ExitCode
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.results import BuildResult, PlatformResult
from tests.ci.stored_history import ENVIRONMENT, Project, noisy, result

NEWER = {**ENVIRONMENT, "compiler": "g++ 13.1"}


def store_runs(
    project: Project, platforms: Iterable[PlatformResult], build: BuildDetails | None = None
) -> None:
    for platform in platforms:
        project.run(f"{len(project.runs):040x}", platform, build=build)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(folder=tmp_path)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A store in which install takes 20 % longer with run 12."""
    project = Project(folder=tmp_path_factory.mktemp("slower"))
    project.configure()
    store_runs(project, map(result, [*noisy(900, 12, 1), *noisy(1080, 8, 2)]))
    return project


@pytest.fixture
def regressed(slower: Project, tmp_path: Path) -> Project:
    return slower.copy(tmp_path)


def test_check_reports_the_regression_and_its_commits(regressed: Project) -> None:
    code, said = regressed.ci("history", "cpu", "--check")
    assert code == ExitCode.REGRESSION
    assert "1 open regression\n" in said
    assert re.search(r"install \+\d+ s \(\+(19|20|21) %\)", said)
    assert "between run-011 (commit 000000000000) and run-012" in said
    assert re.search(r"also changed: install \+[\d,]+ CPU-s \(.*\), total \+", said)


def test_the_whole_history_has_a_table_and_exits_with_0(regressed: Project) -> None:
    code, said = regressed.ci("history", "cpu")
    assert code == ExitCode.PASSED
    assert "tiny: cpu, 20 runs" in said
    assert "environment 1: cpu; a CPU, 2 cores, 4 GiB; g++ 12.2" in said
    assert re.search(
        r"^ *install +wall  +1,0\d\d s +\+(19|20|21) % .* on 2026-01-02 *$", said, re.M
    )
    assert re.search(r"^ *pytest +wall +50 s +- ", said, re.M)


def test_markdown_and_json_say_the_same(regressed: Project) -> None:
    _, markdown = regressed.ci("history", "cpu", "--format", "markdown")
    assert re.search(r"^\| install \| wall \| 1,0\d\d s \| \+(19|20|21) % \|", markdown, re.M)
    assert re.search(r"^\* install \+\d+ s \(\+\d+ %\)", markdown, re.M)
    code, said = regressed.ci("history", "cpu", "--format", "json", "--check")
    assert code == ExitCode.REGRESSION
    document = json.loads(said)
    assert document["regression"]
    [environment] = document["environments"]
    [shift] = environment["shifts"]
    assert shift["open"]
    assert shift["changes"][0]["measure"] == "install.wall_s"
    assert shift["changes"][0]["first_run_after"]["run_id"] == "run-012"


def test_the_cause_is_reported_with_the_regression(project: Project) -> None:
    def build(*units: tuple[str, float]) -> BuildDetails:
        made = [Unit(output=name, kind=UnitKind.COMPILE, seconds=took) for name, took in units]
        return BuildDetails(units=tuple(made))

    store_runs(project, map(result, noisy(900, 8, 1)), build(("add.o", 880)))
    after = build(("add.o", 880), ("new.o", 180))
    store_runs(project, map(result, noisy(1080, 8, 2)), after)
    said = project.ci("history", "cpu", "--check")[1]
    assert re.search(r"install \+\d+ s \(\+20 %\), 180 s of it in 1 new unit", said)


def test_what_is_accepted_as_json(regressed: Project) -> None:
    accept = ("run-012", "--reason", "more operators")
    code, said = regressed.accept(*accept, "--format=markdown")
    assert code == ExitCode.USAGE
    assert "--format: got 'markdown', expected one of table, json" in said
    code, said = regressed.accept(*accept, "--format=json")
    accepted = json.loads(said)["accepted"]
    assert code == ExitCode.PASSED
    assert {taken["commit"] for taken in accepted} == {f"{12:040x}"}
    assert all(taken["measure"] and taken["level"] > 0 for taken in accepted)


def test_what_is_accepted_alarms_no_more(regressed: Project) -> None:
    code, said = regressed.accept("run-012", "--reason", "more operators")
    assert code == ExitCode.PASSED
    assert "accepted: install up to 1,0" in said
    code, said = regressed.tracked("--check")
    assert code == ExitCode.PASSED
    assert "no open regression" in said
    assert re.search(r"smallest detectable change: install \d", said)
    assert "more operators" in regressed.tracked()[1]


def test_only_what_got_worse_can_be_accepted(regressed: Project) -> None:
    code, said = regressed.accept("run-003", "--reason", "no")
    assert code == ExitCode.USAGE
    assert "accept: no measure of cpu rose with run 'run-003'" in said
    assert "Runs with rises that are not accepted: run-012." in said


def test_a_stage_alone(regressed: Project) -> None:
    code, said = regressed.ci("history", "cpu", "--stage", "pytest", "--check")
    assert code == ExitCode.PASSED
    assert "install" not in said


def test_the_last_runs_alone(regressed: Project) -> None:
    code, said = regressed.ci("history", "cpu", "--last", "6", "--check")
    assert code == ExitCode.PASSED
    assert "tiny: cpu, 6 runs" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["cup"], "no run of 'cup'; did you mean 'cpu'?"),
        (["cpu", "--stage", "instal"], "no measure of 'instal'; did you mean 'install'?"),
        (["cpu", "--project", "tin"], "'tin'; did you mean 'tiny'?"),
        (["cpu", "--fail-on", "environment"], "--fail-on: can only be used with --check"),
        (["cpu", "--reason", "x"], "unknown option '--reason'"),
    ],
)
def test_a_wrong_command_line_is_reported(
    regressed: Project, options: list[str], expected: str
) -> None:
    code, said = regressed.ci("history", *options)
    assert code == ExitCode.USAGE
    assert expected in said


def test_a_young_rise_is_suspected_and_exits_with_0(project: Project) -> None:
    store_runs(project, map(result, [*noisy(900, 12, 1), *noisy(1350, 3, 2)]))
    code, said = project.ci("history", "cpu", "--check")
    assert code == ExitCode.PASSED
    assert "1 suspected regression\n  install +" in said
    assert "not confirmed yet: 2 more runs may confirm it" in said


def test_something_from_nothing_has_no_relative_size(project: Project) -> None:
    lines = [result(900, build=BuildResult(generated_lines=count)) for count in (0, 0, 500)]
    store_runs(project, lines)
    said = project.ci("history", "cpu")[1]
    assert re.search(r"500 lines +from 0 .* from 0 on 2026-01-01", said)
    assert "0 lines -> 500 lines, probability" in said
    assert "Infinity" not in project.ci("history", "cpu", "--format", "json")[1]


def test_too_few_runs_are_reported(project: Project) -> None:
    store_runs(project, [result(900), result(1200)])
    code, said = project.ci("history", "cpu", "--check")
    assert code == ExitCode.PASSED
    assert re.search(
        r"environment 1, 2 runs: too few runs to judge: a change needs at least \d+ runs before it",
        said,
    )


def of_machine(**facts: str) -> dict[str, object]:
    return {**ENVIRONMENT, "machine": {**ENVIRONMENT["machine"], **facts}}


OLD = {"hostname": "box", "kernel": "5.10", "os": "Debian 11"}


def test_a_rise_in_one_commit_is_of_the_environment(project: Project) -> None:
    project.configure()
    for seconds in (*noisy(100, 20, 1), *noisy(120, 20, 2)):
        project.run("a" * 40, result(seconds, environment=of_machine(**OLD)))
    code, said = project.ci("history", "cpu", "--check")
    assert (code, "\nno open regression\n" in said) == (ExitCode.PASSED, True)
    assert "together with: sources unchanged: both runs are of commit aaaaaaaaaaaa\n" in said
    on_environment = ("--check", "--fail-on", "environment")
    assert project.tracked(*on_environment)[0] == ExitCode.REGRESSION
    assert project.ci("history", *on_environment)[0] == ExitCode.REGRESSION
    project.accept("run-020", "--reason", "another disk")
    assert project.tracked(*on_environment)[0] == ExitCode.PASSED


@pytest.mark.parametrize(
    ("now", "change"),
    [
        ({"kernel": "6.1"}, "kernel changed: 5.10 -> 6.1"),
        ({"hostname": "new"}, "host changed: box -> new"),
        (
            {"kernel": "6.1", "os": "Debian 12"},
            "kernel changed: 5.10 -> 6.1; operating system changed: Debian 11 -> Debian 12",
        ),
    ],
)
def test_a_rise_with_another_machine_is_of_the_environment(
    project: Project, now: dict[str, str], change: str
) -> None:
    store_runs(project, (result(it, environment=of_machine(**OLD)) for it in noisy(100, 12, 1)))
    replaced = of_machine(**{**OLD, **now})
    store_runs(project, (result(it, environment=replaced) for it in noisy(107, 12, 2)))
    code, said = project.ci("history", "cpu", "--check")
    assert (code, "\nno open regression\n" in said) == (ExitCode.PASSED, True)
    assert f"together with: {change}\n" in said
    code, said = project.ci("history", "cpu", "--check", "--fail-on", "environment")
    assert code == ExitCode.REGRESSION


@pytest.mark.parametrize("names", [["a", "b"], [f"pod-{number}" for number in range(24)]])
def test_several_hosts_explain_no_rise(project: Project, names: list[str]) -> None:
    """Those of a fleet take turns; that of a container is new in every run."""
    installs = [*noisy(100, 12, 1), *noisy(107, 12, 2)]
    hosts = [{**OLD, "hostname": names[at % len(names)]} for at in range(24)]
    store_runs(
        project,
        (result(it, environment=of_machine(**on)) for it, on in zip(installs, hosts, strict=True)),
    )
    code, said = project.ci("history", "cpu", "--check")
    assert (code, "host changed" in said) == (ExitCode.REGRESSION, False)


def test_environments_with_too_few_runs_are_one_list(project: Project) -> None:
    """Each is named by what differs; only the first one has a table, and its line is wrapped."""
    environments = [{**ENVIRONMENT, "compiler": f"g++ {number}"} for number in (1, 2, 3)]
    store_runs(project, [result(900, environment=it) for it in environments])
    said = project.ci("history", "cpu")[1]
    assert said.count("Stage ") == 1
    assert (
        "\n2 environments with too few runs to judge\n  environment 2: as environment 1, but"
        in said
    )
    assert re.search(r"environment 3: as environment 1, but compiler: g\+\+ \d: 1 run, ", said)
    assert "\nenvironments 1, 2, 3: too few runs to judge: " in said
    described = said[said.index("environment 1: ") : said.index("1 run, ")]
    assert max(map(len, described.splitlines())) <= 80


def test_runs_without_measures_are_reported(project: Project) -> None:
    store_runs(project, [result(900, stages=(), total_s=None)])
    code, said = project.ci("history", "cpu", "--check")
    assert code == ExitCode.PRODUCT_FAILURE
    assert "nothing to judge: no stage completed in 1 run" in said


def test_a_new_compiler_is_reported_and_is_not_a_regression(project: Project) -> None:
    newer = [result(install, environment=NEWER) for install in noisy(1080, 8, 2)]
    store_runs(project, [*map(result, noisy(900, 12, 1)), *newer])
    for options in (["--check"], []):
        code, said = project.ci("history", "cpu", *options)
        assert code == ExitCode.PASSED
        assert "run-012 (commit 000000000000): compiler changed: g++ 12.2 -> g++ 13.1" in said


TOOLS = {**ENVIRONMENT, "packages": {"pytest": "8.3.4"}}
NEW_TOOLS = {**ENVIRONMENT, "packages": {"pytest": "9.0.1"}}


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """An upgrade of pytest with which install takes 50 % longer."""
    project = Project(folder=tmp_path_factory.mktemp("upgraded"))
    project.configure()
    before = [result(seconds, environment=TOOLS) for seconds in noisy(100, 12, 1)]
    after = [result(seconds, environment=NEW_TOOLS) for seconds in noisy(150, 6, 2)]
    store_runs(project, [*before, *after])
    return project


def test_a_rise_with_a_change_of_the_environment_is_said_first(upgraded: Project) -> None:
    code, said = upgraded.ci("history", "cpu", "--check")
    assert code == ExitCode.PASSED
    _, heading, what, *_ = said.splitlines()
    assert heading == "1 rise together with a change of the environment"
    change = "together with: test tools changed: pytest 8.3 -> pytest 9.0"
    assert re.match(rf"  install \+[45]\d s \(\+(49|50|51) %\), {change}$", what)
    assert "between run-011 (commit 000000000000) and run-012 (commit 000000000000)" in said
    assert "no open regression, since the sources may not be the cause: `--check --fail-on" in said
    document = json.loads(upgraded.ci("history", "cpu", "--format", "json")[1])
    [change] = document["environment_changes"]
    assert (change["open"], change["rises"][0]["measure"]) == (True, "install.wall_s")
    assert not document["regression"]


def test_a_rise_with_a_change_of_the_environment_fails_where_asked(
    upgraded: Project, tmp_path: Path
) -> None:
    project = upgraded.copy(tmp_path)
    fail = ("--check", "--fail-on", "environment")
    assert project.tracked(*fail)[0] == ExitCode.REGRESSION
    assert project.tracked(*fail, "--stage", "pytest")[0] == ExitCode.PASSED
    assert project.accept("run-012", "--reason", "needed")[0] == 0
    code, said = project.tracked(*fail)
    assert (code, re.search("accepted on .*: needed", said) is not None) == (ExitCode.PASSED, True)


@pytest.mark.parametrize(
    ("seconds", "environment"),
    [
        ([130.0] * 2, NEW_TOOLS),  # too few runs to confirm it
        ([100.5] * 6, NEW_TOOLS),
        ([80.0] * 6, NEW_TOOLS),
        ([150.0] * 6, {**TOOLS, "machine": {"cpu_model": "a slower CPU", "cores": 2}}),
        ([150.0] * 6, {**TOOLS, "compiler_cache": {"state": "cold"}}),
    ],
)
def test_other_changes_of_the_environment_do_not_fail(
    project: Project, seconds: list[float], environment: dict[str, object]
) -> None:
    before = [result(it, environment=TOOLS) for it in noisy(100, 12, 1)]
    store_runs(project, [*before, *(result(it, environment=environment) for it in seconds)])
    code, said = project.ci("history", "cpu", "--check", "--fail-on", "environment")
    assert code == ExitCode.PASSED
    assert ("not confirmed yet: 3 more runs" in said) is (len(seconds) == 2)


def test_simulated_runs_are_no_history_of_real_ones(project: Project) -> None:
    simulated = [result(install, simulated=True) for install in noisy(1080, 8, 2)]
    store_runs(project, [*map(result, noisy(900, 12, 1)), *simulated])
    code, said = project.ci("history", "cpu")
    assert code == ExitCode.PASSED
    assert "environment 1: cpu (simulated device); " in said
    assert "environment 2: cpu; " in said
    assert "changed:" not in said
    assert "no open regression" in said
