"""Acceptances of rises in ``ci-accepted.yaml``: they outlast the store and are edited as a file."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from sqlalchemy import text

from ci.cli import main
from ci.errors import ExitCode
from ci.plan.load import load_accepted
from ci.store.folder import default_url
from tests.ci.postgresql_server import connected
from tests.ci.stored_history import Project, expect, git, noisy, result

ACCEPT = ("run-012", "--reason", "two new kernels")
LEVELS = [*noisy(900, 12, 1), *noisy(1080, 8, 2)]
"""Seconds of install: 20 % more from run 12 on."""


def store_runs(project: Project, name: str = "run", dirty_from: int = len(LEVELS)) -> None:
    for number, seconds in enumerate(LEVELS):
        platform, commit = result(seconds), f"{number:040x}"
        dirty = number >= dirty_from
        project.run(commit, platform, run_id=f"{name}-{number:03}", dirty=dirty)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(folder=tmp_path_factory.mktemp("slower"))
    project.configure()
    store_runs(project)
    return project


@pytest.fixture
def project(slower: Project, tmp_path: Path) -> Project:
    return slower.copy(tmp_path)


@pytest.fixture
def accepted(project: Project) -> Project:
    assert project.tracked("--check")[0] == ExitCode.REGRESSION
    assert project.accept(*ACCEPT)[0] == ExitCode.PASSED
    return project


def accepted_file(project: Project) -> Path:
    return project.source / "ci-accepted.yaml"


def edit(project: Project, before: str, after: str) -> str:
    """Replace a pattern in the file; returns its new content."""
    path = accepted_file(project)
    edited = re.sub(before, after, path.read_text(encoding="utf-8"))
    path.write_text(edited, encoding="utf-8")
    return edited


def lose_store(project: Project) -> None:
    (project.results / "ci.db").unlink()
    project.runs.clear()


def test_an_acceptance_outlasts_the_store_and_the_names_of_its_runs(accepted: Project) -> None:
    lose_store(accepted)
    store_runs(accepted, "again")
    expect(accepted.tracked("--check"), "\nno open regression\n")
    assert "two new kernels" in accepted.tracked()[1]


def test_the_file_says_what_who_when_and_why(project: Project) -> None:
    git(project.source, "init", "--quiet")
    git(project.source, "config", "user.name", "Ada L.")
    said = expect(project.accept(*ACCEPT, "--until", "2999-12-31"))
    assert f"{accepted_file(project)}: written. Review the change, then commit the file." in said
    assert "accepted: install up to 1,0" in said
    text = accepted_file(project).read_text(encoding="utf-8")
    entry = rf"""- platform: cpu
  stage: install
  quantity: wall_s
  level: 10\d\d\.\d+
  commit: {12:040x}
  reason: two new kernels
  who: Ada L\.
  date: 20\d\d-\d\d-\d\d
  until: 2999-12-31
"""
    assert text.startswith("# Accepted rises")
    assert "\nproject: tiny\naccepted:\n" in text
    assert re.search(entry, text)
    assert project.tracked("--check")[0] == ExitCode.PASSED


@pytest.mark.parametrize("squash", [False, True])
def test_a_rise_that_was_accepted_on_a_branch_is_accepted_once_merged(
    tmp_path: Path, squash: bool
) -> None:
    """The merge has the accepted commit among its ancestors; a squashed one is another commit."""
    project = Project(folder=tmp_path)
    project.measure_each(LEVELS[:12])
    project.branch("topic")
    slow = project.commit()
    project.commit()
    project.branch("main")
    if squash:
        project.commit()
    else:
        git(project.source, "merge", "--quiet", "--no-ff", "topic")
    project.measure_each(LEVELS[12:])
    project.configure()
    assert project.tracked("--check")[0] == ExitCode.REGRESSION
    assert project.accept(*ACCEPT)[0] == ExitCode.PASSED
    edit(project, "commit: .*", f"commit: {slow}")
    expected = ExitCode.REGRESSION if squash else ExitCode.PASSED
    assert project.tracked("--check")[0] == expected
    if not squash:
        said = expect(project.compare("run-005", "latest", "--fail-on", "regression"))
        assert "\naccepted: install +" in said


def test_uncommitted_changes_are_accepted_by_their_run(project: Project) -> None:
    lose_store(project)
    store_runs(project, dirty_from=12)
    assert project.accept(*ACCEPT)[0] == ExitCode.PASSED
    text = accepted_file(project).read_text(encoding="utf-8")
    assert "\n  run: run-012\n" in text
    assert "commit:" not in text
    assert project.tracked("--check")[0] == ExitCode.PASSED


@pytest.mark.parametrize("name", ["run-012", f"{12:040x}", f"{12:040x}"[:39]])
def test_a_withdrawn_acceptance_alarms_again(accepted: Project, name: str) -> None:
    expect(accepted.withdraw(name), "withdrawn: install up to 1,0")
    assert "accepted: []\n" in accepted_file(accepted).read_text(encoding="utf-8")
    assert accepted.tracked("--check")[0] == ExitCode.REGRESSION
    with accepted.open() as store:
        assert store.accepted("tiny") == []


def test_only_what_is_accepted_can_be_withdrawn(accepted: Project) -> None:
    said = expect(accepted.withdraw("run-003"), code=ExitCode.USAGE)
    assert "withdraw: no rise of cpu is accepted since 'run-003'" in said
    assert f"Accepted are rises since {12:040x}." in said
    accepted.withdraw("run-012")
    assert "None is accepted on cpu." in accepted.withdraw("run-012")[1]


def test_an_acceptance_ends_after_its_last_day(project: Project) -> None:
    assert project.accept(*ACCEPT, "--until", "2999-01-31")[0] == ExitCode.PASSED
    assert project.tracked("--check")[0] == ExitCode.PASSED
    edit(project, "2999-01-31", "2020-01-31")
    said = expect(project.tracked("--check"), code=ExitCode.REGRESSION)
    assert "no longer accepted: install up to 1,0" in said
    assert ", until 2020-01-31: two new kernels\n" in said


def test_a_reader_without_the_file_has_the_copy_in_the_store(accepted: Project) -> None:
    accepted_file(accepted).unlink()
    assert accepted.tracked("--check")[0] == ExitCode.PASSED
    assert accepted.ci("history", "cpu", "--check")[0] == ExitCode.PASSED


def test_the_copy_follows_the_file(accepted: Project) -> None:
    edit(accepted, "two new kernels", "three kernels")
    accepted.tracked()
    with accepted.open() as store:
        assert {it.reason for it in store.accepted("tiny")} == {"three kernels"}


def test_a_store_that_cannot_be_written_is_a_warning(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(default_url(project.results)) as connection:
        connection.execute(text("CREATE TABLE keep AS SELECT * FROM accepted"))
        connection.execute(text("DROP TABLE accepted"))
        connection.execute(text("CREATE VIEW accepted AS SELECT * FROM keep"))
    place = ("--source", str(project.source), "--results", str(project.results))
    assert main(["accept", "cpu", *ACCEPT, *place]) == ExitCode.PASSED
    assert "warning: the store cannot save the acceptances: " in capsys.readouterr().err
    assert main(["history", "cpu", "--check", *place]) == ExitCode.PASSED
    assert "warning: the store cannot save the acceptances: " in capsys.readouterr().err


def test_a_new_file_keeps_what_only_the_store_had(accepted: Project) -> None:
    """As after the upgrade of a store from before the file."""
    accepted_file(accepted).unlink()
    for seconds in noisy(1300, 8, 3):
        accepted.run(f"{len(accepted.runs):040x}", result(seconds))
    assert accepted.accept("run-020", "--reason", "a third")[0] == ExitCode.PASSED
    text = accepted_file(accepted).read_text(encoding="utf-8")
    assert {"two new kernels", "a third"} == {*re.findall("reason: (.*)", text)}
    assert accepted.tracked("--check")[0] == ExitCode.PASSED


def test_what_is_accepted_cannot_be_accepted_again(accepted: Project) -> None:
    said = expect(accepted.accept(*ACCEPT), code=ExitCode.USAGE)
    assert "accept: the rises of cpu with run 'run-012' are accepted\n" in said
    assert "Edit ci-accepted.yaml, or withdraw them first: " in said
    assert "withdraw cpu run-012" in said


def test_an_acceptance_of_a_measure_replaces_the_last_one(accepted: Project) -> None:
    """As if only some measures had been accepted."""
    path = accepted_file(accepted)
    first, *others = path.read_text(encoding="utf-8").split("- platform: cpu\n")
    kept = [it for it in others if "stage: total\n" in it]
    lowest = re.sub("level: .*", "level: 1.0", kept[-1])
    entries = [*kept[:-1], f"{lowest}# total\n"]
    path.write_text("- platform: cpu\n".join([first, *entries]), encoding="utf-8")
    assert accepted.accept(*ACCEPT[:-1], "measured")[0] == ExitCode.PASSED
    found = load_accepted(path).accepted
    assert len({it.place for it in found}) == len(found) == len(others)
    assert {it.reason for it in found} == {"measured"}
    assert [it.stage for it in found][: len(kept)] == ["total"] * len(kept)
    assert path.read_text(encoding="utf-8").endswith("# total\n")


COMMENTED = """\
# Ours, with
# two lines.

project: tiny
accepted:
# of the kernels
  - {platform: moore, stage: install, quantity: wall_s, level: 9.5, run: r, reason: x, who: a,
     date: 2026-01-02}
  # next

  - platform: cpu  # the slowest
    reason: |
      two
      # lines
    who: a
    date: 2026-01-02
    stage: install
    quantity: units
    level: 7
    run: run-003
# the end
"""


def test_comments_and_other_lines_are_kept(project: Project) -> None:
    path = accepted_file(project)
    path.write_text(COMMENTED.rstrip("\n"), encoding="utf-8")
    assert project.accept(*ACCEPT)[0] == ExitCode.PASSED
    added = path.read_text(encoding="utf-8")
    body, end = COMMENTED[: -len("# the end\n")], "# the end\n"
    assert added.startswith(body)
    assert added.endswith(end)
    assert added[len(body) :].startswith("  - platform: cpu\n    stage: install\n")
    assert project.tracked("--check")[0] == ExitCode.PASSED
    assert project.withdraw("run-012")[0] == ExitCode.PASSED
    assert path.read_text(encoding="utf-8") == COMMENTED
    assert project.withdraw("run-003")[0] == ExitCode.PASSED
    left = COMMENTED[: COMMENTED.index("  # next")] + "# the end\n"
    assert path.read_text(encoding="utf-8") == left


@pytest.mark.parametrize(
    "content",
    [
        "# Ours\nproject: tiny\naccepted: []\n",
        "# Ours\naccepted:\n-\n  {fields}\n-\n  {fields}\nproject: tiny\n",
        "# Ours\n{{project: tiny, accepted: []}}\n",
        "# Ours\nproject: tiny\n",
    ],
)
def test_any_form_of_the_file_can_be_edited(project: Project, content: str) -> None:
    fields = "{platform: moore, stage: install, quantity: wall_s, level: 9.5, run: r, reason: x,"
    path = accepted_file(project)
    path.write_text(content.format(fields=f"{fields} who: a, date: 2026-01-02}}"), encoding="utf-8")
    before = load_accepted(path).accepted
    assert project.accept(*ACCEPT)[0] == ExitCode.PASSED
    assert path.read_text(encoding="utf-8").startswith("# Ours\n")
    found = load_accepted(path).accepted
    assert found[: len({*before})] == tuple(dict.fromkeys(before))
    assert {it.platform for it in found[len({*before}) :]} == {"cpu"}
    assert project.withdraw("run-012")[0] == ExitCode.PASSED
    assert load_accepted(path).accepted == tuple(dict.fromkeys(before))


def test_the_file_of_another_project_is_left_alone(accepted: Project) -> None:
    other = edit(accepted, "project: tiny", "project: other")
    assert accepted.tracked("--check")[0] == ExitCode.PASSED  # of the store's copy
    said = expect(accepted.withdraw("run-012"), code=ExitCode.USAGE)
    assert "project: got 'other', expected 'tiny', the project of the runs" in said
    assert "Name the folder of that project: --source DIR" in said
    assert accepted_file(accepted).read_text(encoding="utf-8") == other


def test_no_acceptance_is_written_into_another_project(project: Project) -> None:
    # In the folder of this program:
    said = expect(project.ci("accept", "cpu", *ACCEPT), code=ExitCode.USAGE)
    assert re.search(r"/ci\.yaml: project: got 'infini-ops', expected 'tiny'", said)


def test_acceptances_are_exported_and_imported(accepted: Project, tmp_path: Path) -> None:
    accepted.tracked()
    output = tmp_path / "out"
    options = ("--format", "csv", "--output", str(output), "--table", "accepted")
    assert accepted.ci("export", *options)[0] == ExitCode.PASSED
    with (output / "accepted.csv").open(newline="", encoding="utf-8") as file:
        [row, *_] = rows = [*csv.DictReader(file)]
    assert {it["stage"] for it in rows} == {"install", "total"}
    known = {"project": "tiny", "commit": f"{12:040x}", "reason": "two new kernels", "until": ""}
    assert known.items() <= row.items()
    with accepted.open() as store:
        stored = store.accepted("tiny")
        assert store.mirror_accepted("tiny", [])
    for said in ("imported", "already here"):
        printed = expect(accepted.ci("import", str(accepted_file(accepted))))
        assert f"ci-accepted.yaml: {len(stored)} acceptances of tiny {said}" in printed
    with accepted.open() as store:
        assert store.accepted("tiny") == stored


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{}", ":3: accepted.0.platform: got nothing, expected a value; this key is required"),
        ("{platforms: cpu}", "got an unknown key, expected one of commit, date, level, platform"),
        (
            "{quantity: hours}",
            "quantity: got \"hours\" (string), expected one of 'wall_s', 'cpu_s'",
        ),
        ("{date: soon}", ':3: accepted.0.date: got "soon" (string), expected'),
        (
            "{platform: cpu, stage: install, quantity: wall_s, level: 9.5, reason: x, who: a,"
            " date: 2026-01-02}",
            ":3: accepted.0: got a mapping, expected a commit or a run, the first with the rise",
        ),
    ],
)
def test_an_invalid_entry_is_reported_with_its_line(
    project: Project, entry: str, expected: str
) -> None:
    text = f"project: tiny\naccepted:\n  - {entry}\n"
    accepted_file(project).write_text(text, encoding="utf-8")
    expect(project.tracked("--check"), expected, code=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"project: tiny\naccepted: [", ":2: not valid YAML: while parsing a flow node"),
        (
            b"project: tiny\naccepted:\n<<<<<<< HEAD\n- {}\n=======\n- {}\n>>>>>>> topic\n",
            "ci-accepted.yaml:3: got a merge conflict, expected its resolution",
        ),
        (b"\xff", "ci-accepted.yaml: cannot be read: 'utf-8' codec can't decode"),
        (b"", "ci-accepted.yaml:1: project: got nothing, expected a value"),
        (None, "ci-accepted.yaml: cannot be read: Is a directory"),
    ],
)
@pytest.mark.parametrize(
    "words",
    [
        "history cpu --check",
        "compare run-000 run-019",
        "accept cpu run-012 --reason x",
        "withdraw cpu run-012",
    ],
)
def test_a_damaged_file_is_reported_with_its_line(
    project: Project, content: bytes | None, expected: str, words: str
) -> None:
    path = accepted_file(project)
    path.mkdir() if content is None else path.write_bytes(content)
    answer = project.ci(*words.split(), "--source", str(project.source))
    expect(answer, expected, code=ExitCode.USAGE)
    assert content is None or path.read_bytes() == content


@pytest.mark.parametrize("content", [b"project: tiny\naccepted: [", None])
def test_a_damaged_file_is_not_imported(accepted: Project, content: bytes | None) -> None:
    path = accepted_file(accepted)
    path.unlink()
    if content:
        path.write_bytes(content)
    expect(accepted.ci("import", str(path)), "ci-accepted.yaml:", code=ExitCode.USAGE)
    with accepted.open() as store:
        assert store.accepted("tiny")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("x" * 10_001, "--reason: String should have at most 10000 characters"),
        ("\udcff", "--reason: Input should be a valid string"),
    ],
)
def test_a_reason_that_cannot_be_kept_is_refused(
    project: Project, reason: str, expected: str
) -> None:
    expect(project.accept(*ACCEPT[:-1], reason), expected, code=ExitCode.USAGE)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("history cpu --until 2999-12-31", "unknown option '--until'"),
        ("accept cpu run-012", "the following arguments are required: --reason"),
        ("accept cpu run-012 --reason=", "--reason: String should have at least 1 character"),
        ("accept cpu run-012 --reason x --until 2020-01-31", "got 2020-01-31, expected 20"),
        ("accept cpu run-012 --reason x --until soon", "got 'soon', expected a day such as 2026"),
        ("history cpu --accept run-012 --reason x --check", "unknown option '--check'"),
        ("history cpu --accept run-012 --reason x --withdraw run-012", "unknown option '--withdr"),
        ("history cpu nvidia --accept run-012 --reason x", "unknown argument 'run-012'"),
        ("history cpu --withdraw run-012 --check", "unknown option '--check'"),
        ("history cpu --accept", "the following arguments are required: RUN, --reason"),
    ],
)
def test_a_wrong_command_line_is_reported(project: Project, words: str, expected: str) -> None:
    expect(project.ci(*words.split()), expected, code=ExitCode.USAGE)


@pytest.mark.parametrize(
    "words", ["cpu --accept run-012", "cpu --accept=run-012", "--accept run-012 cpu"]
)
def test_the_earlier_spelling_is_understood(project: Project, words: str) -> None:
    """Scripts of the time when these were options of ``history``."""
    place = ("--source", str(project.source))
    assert project.ci("history", *words.split(), *place, "--reason", "x")[0] == ExitCode.PASSED
    assert project.tracked("--check")[0] == ExitCode.PASSED
    said = expect(project.tracked("--withdraw", "run-012", "--format", "json"))
    [(key, withdrawn)] = json.loads(said).items()
    assert key == "withdrawn"
    assert {"install.wall_s", "total.wall_s"} <= {it["measure"] for it in withdrawn}
    assert project.tracked("--check")[0] == ExitCode.REGRESSION
