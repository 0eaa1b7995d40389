"""``python -m ci alarms``: states, owners and links of alarms, and what they change elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ExitCode
from tests.ci.stored_history import Project, expect, git, noisy, result

ALONE = ["@kernels", "@gpu"]
"""The owners of the changed file; a faulty configuration adds none."""
LINK = "https://forge.example/issues/7"


def measure(project: Project, level: float, count: int, seed: int) -> list[str]:
    return [
        project.measure(result(seconds), result(3 * seconds, platform="moore"))
        for seconds in noisy(level, count, seed)
    ]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Both platforms get slower by commit 12, which changes a file of an owner."""
    project = Project(folder=tmp_path_factory.mktemp("slow"))
    measure(project, 100, 12, 1)
    (project.source / "kernel.cu").write_text("slow\n")
    git(project.source, "add", "kernel.cu")
    measure(project, 120, 8, 2)
    (project.source / ".github").mkdir()
    (project.source / ".github" / "CODEOWNERS").write_text("* @all\n*.cu @kernels @gpu\n")
    project.configure()
    return project


@pytest.fixture
def project(slow: Project, tmp_path: Path) -> Project:
    return slow.copy(tmp_path)


def alarms(project: Project, *words: str, code: ExitCode = ExitCode.PASSED) -> str:
    return expect(project.ci("alarms", "--source", str(project.source), *words), code=code)


def listed(project: Project, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(alarms(project, "--json", *words))["alarms"]
    return found


def check(project: Project, *words: str) -> tuple[int, str]:
    return project.ci("history", *words, "--check", "--source", str(project.source))


def test_an_alarm_is_listed_with_its_id_and_owners(project: Project) -> None:
    [alarm] = listed(project)
    assert (alarm["state"], alarm["statement"], alarm["link"]) == ("open", None, None)
    assert alarm["owners"] == ALONE
    assert [row["platform"] for row in alarm["rows"]] == ["cpu", "moore"]
    line = f"alarm {alarm['id']}: open; owners: @kernels, @gpu"
    assert line in alarms(project)
    for words in ((), ("cpu",)):
        said = expect(check(project, *words), line, code=ExitCode.REGRESSION)
        assert "probability" not in said
    expect(
        check(project), f"alarms {alarm['id']} --acknowledge --note TEXT", code=ExitCode.REGRESSION
    )
    _, said = project.ci("history", "cpu", "--format", "json")
    shifts = json.loads(said)["environments"][0]["shifts"]
    assert [it["alarm"] for it in shifts] == [alarm["id"]]


def test_a_project_in_a_folder_of_its_repository_has_the_owners_of_that(project: Project) -> None:
    folder = project.source / "ops"
    folder.mkdir()
    [alarm] = json.loads(expect(project.ci("alarms", "--json", "--source", str(folder))))["alarms"]
    assert alarm["owners"] == ALONE


def test_the_owner_of_a_platform_follows_those_of_the_files(project: Project) -> None:
    config = project.source / "ci.yaml"
    known = config.read_text(encoding="utf-8")
    for of_moore, expected in (("'@moore'", ["@kernels", "@gpu", "@moore"]), ("a b", ALONE)):
        platforms = f"{{cpu: {{owner: '@gpu'}}, moore: {{owner: {of_moore}}}}}"
        config.write_text(known.replace("{cpu: {}}", platforms), encoding="utf-8")
        assert [it["owners"] for it in listed(project)] == [expected]


def test_its_id_stays_while_a_platform_joins_and_runs_are_added(project: Project) -> None:
    _, said = check(project, "moore", "--format", "json")
    measure(project, 120, 3, 3)
    [alarm] = listed(project)
    assert {it["alarm"] for it in json.loads(said)["environments"][0]["shifts"]} == {alarm["id"]}


def test_an_acknowledged_alarm_says_who_works_on_it_and_fails_the_check(project: Project) -> None:
    [alarm] = listed(project)
    words = ("--acknowledge", "--note", "a cache is missing", "--by", "A. Developer")
    said = alarms(project, alarm["id"], *words, "--link", LINK)
    state = f"alarm {alarm['id']}: acknowledged, says A. Developer on "
    assert state in said
    assert f": a cache is missing; owners: @kernels, @gpu; issue: {LINK}" in said
    expect(check(project), state, "\n1 open regression\n", code=ExitCode.REGRESSION)
    [alarm] = listed(project)
    statement = alarm["statement"]
    assert (statement["who"], statement["note"]) == ("A. Developer", "a cache is missing")
    assert (alarm["state"], alarm["link"]) == ("acknowledged", LINK)
    alarms(project, alarm["id"], "--reopen")
    assert [it["state"] for it in listed(project)] == ["open"]
    assert [it["link"] for it in listed(project)] == [LINK]


def test_an_invalid_alarm_fails_no_check(project: Project) -> None:
    [alarm] = listed(project)
    alarms(project, alarm["id"], "--invalid", "--note", "another job")
    for words in ((), ("cpu",)):
        said = expect(check(project, *words), "\nno open regression\n")
        assert "\n1 invalid alarm\n" in said
        assert not re.search(r"^\d+ open regression", said, re.MULTILINE)
    _, said = check(project, "--format", "json")
    assert json.loads(said)["regression"] is False
    found = json.loads(check(project, "cpu", "--format", "json")[1])
    assert (found["regression"], found["environments"][0]["shifts"][0]["open"]) == (False, False)


def test_a_fixed_alarm_is_over_when_the_cost_is_back(project: Project) -> None:
    [alarm] = listed(project)
    fix, *_ = measure(project, 100, 8, 4)
    alarms(project, alarm["id"], "--fixed", fix[:9], "--all")
    assert listed(project) == []
    [ended] = listed(project, "--all")
    assert (ended["state"], ended["statement"]["commit"]) == ("resolved", fix)
    assert ended["why"].startswith("undone by run-020")
    assert f"fixed by commit {fix[:12]}, says " in alarms(project, "--all")
    assert check(project)[0] == ExitCode.PASSED


def test_a_fix_that_does_not_help_opens_the_alarm_again(project: Project) -> None:
    [alarm] = listed(project)
    fix, *_ = measure(project, 120, 9, 5)
    said = alarms(project, alarm["id"], "--fixed", fix)
    assert f"alarm {alarm['id']}: fixed by commit {fix[:12]}, says " in said
    assert check(project)[0] == ExitCode.REGRESSION
    measure(project, 120, 1, 6)
    [alarm] = listed(project)
    why = f"commit {fix[:12]} did not bring the cost back in 10 commits with runs"
    assert (alarm["state"], alarm["why"]) == ("open", why)
    assert f"alarm {alarm['id']}: open: {why}; fixed by commit" in alarms(project)


def test_a_further_rise_above_an_accepted_one_is_another_alarm(project: Project) -> None:
    [first] = listed(project)
    project.accept("run-012", "--reason", "x")
    measure(project, 150, 8, 7)
    found = {it["id"]: [row["platform"] for row in it["rows"]] for it in listed(project)}
    assert found.pop(first["id"]) == ["moore"]
    assert [*found.values()] == [["cpu", "moore"]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--acknowledge",), "expected the alarm that it is for"),
        (("--link", LINK), "expected the alarm that it is for"),
        (("ID", "--note", "x"), "--note and --by: can only be used with a state"),
        (("ID", "--invalid", "--acknowledge"), "not allowed with argument"),
        (("ID", "--invalid", "--note", " "), "expected 1 to 10,000 printable characters"),
        (("ID", "--invalid", "--by", "a\nb"), "expected 1 to 10,000 printable characters"),
        (("ID", "--link", "issue 7"), "expected https://HOST/PATH"),
        (("ID", "--link", "https://me:secret@h/7"), "expected https://HOST/PATH"),
        (("ID", "--fixed", ""), "--fixed: got '', expected a commit of "),
        (("ID", "--fixed", "nowhere"), "--fixed: got 'nowhere', expected a commit of "),
        (("00000000", "--invalid"), "there is no alarm '00000000'"),
    ],
)
def test_wrong_words_are_refused(project: Project, words: tuple[str, ...], message: str) -> None:
    [alarm] = listed(project)
    given = [alarm["id"] if word == "ID" else word for word in words]
    said = alarms(project, *given, code=ExitCode.USAGE)
    assert message in said
    assert "secret" not in said
    assert listed(project) == [alarm]


def test_a_project_without_an_alarm_lists_none(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, 100, 3, 1)
    assert "tiny of main: 0 alarms" in alarms(project)
    said = alarms(project, "00000000", "--invalid", code=ExitCode.USAGE)
    assert "There is no alarm." in said
