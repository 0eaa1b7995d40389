"""``history`` and ``compare`` along branches: runs that recorded their lineage, in one store."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ci.analysis.ancestry import Ancestry
from ci.errors import ExitCode
from ci.model.fields import MOST_ANCESTORS
from ci.model.outcomes import Outcome
from ci.model.results import Lineage
from ci.plan.lineage import read_lineage
from ci.store.rows import CommitParents, RunHead
from tests.cases import narrowed
from tests.ci.foreign_runs import write_run
from tests.ci.stored_history import BEGIN, ENVIRONMENT, Project, expect, git, noisy, result

FIRM = ("--fail-on", "regression")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(folder=tmp_path)
    project.commit("root")
    return project


def measure_both(project: Project, main: list[float], other: list[float]) -> list[str]:
    """Runs of main and of a branch by turns; returns the commits of main."""
    project.branch("other")
    commits = []
    for ours, theirs in zip(main, other, strict=True):
        project.branch("main")
        commits.append(project.measure(result(ours)))
        project.branch("other")
        project.measure(result(theirs))
    return commits


def history(project: Project, *words: str) -> Any:
    """The history of cpu as JSON."""
    return json.loads(project.ci("history", "cpu", *words, "--format", "json")[1])


def test_a_fast_branch_between_runs_of_main_hides_no_regression(project: Project) -> None:
    main = [*noisy(100, 10, 1), *noisy(112, 10, 2)]
    commits = measure_both(project, main, noisy(80, 20, 3))
    said = expect(project.ci("history", "cpu", "--check"), code=ExitCode.REGRESSION)
    assert "tiny: cpu, 20 runs of main\n" in said
    assert "20 runs of other branches not shown: other (20); see one with --branch\n" in said
    assert re.search(r"install \+1\d s \(\+1[123] %\)", said)
    around = rf"between run-018 \(commit {commits[9][:12]}\) and run-020 "
    assert re.search(around + rf"\(commit {commits[10][:12]}\)", said)
    assert "drift" not in said


def test_a_slow_branch_is_not_blamed_on_main(project: Project) -> None:
    project.measure_each(noisy(100, 12))
    fork = project.main
    project.branch("slow")
    slow = project.measure_each(noisy(140, 6, 2))
    expect(project.ci("history", "cpu", "--check"), "no open regression")
    code, said = project.ci("history", "cpu", "--check", "--branch", "slow")
    assert code == ExitCode.REGRESSION
    assert "tiny: cpu, 18 runs of slow\n" in said
    assert f"between run-011 (commit {fork[:12]}) and run-012 (commit {slow[0][:12]})" in said


def test_a_branch_is_shown_from_its_fork_on(project: Project) -> None:
    project.measure_each(noisy(100, 8))
    project.branch("topic")
    project.branch("main")
    project.measure_each(noisy(60, 8, 2))
    project.branch("topic")
    project.measure_each(noisy(100, 8, 3))
    said = expect(project.ci("history", "cpu", "--branch", "topic"))
    assert "tiny: cpu, 16 runs of topic\n" in said
    assert "improvement" not in said
    found = history(project)
    assert (found["branch"], found["runs"], found["elsewhere"]) == ("main", 16, {"topic": 8})


def test_abandoned_commits_are_kept_apart(project: Project) -> None:
    """After a force push, the line is that of the newest commit."""
    old = project.measure_each(noisy(100, 30))
    git(project.source, "reset", "--quiet", "--hard", old[5])
    new = project.measure_each(noisy(120, 20, 2))
    for lineage in (read_lineage(project.source, old[-1], {}), Lineage()):
        project.run(old[-1], lineage=lineage)  # run again: the line stays
    said = expect(project.ci("history", "cpu", "--check"), code=ExitCode.REGRESSION)
    assert "tiny: cpu, 26 runs of main\n" in said
    tip = old[-1][:12]
    assert f"25 runs of commits that main does not have, not shown: {tip} (25); see" in said
    assert f"between run-005 (commit {old[5][:12]}) and run-030 (commit {new[0][:12]})" in said
    found = history(project)
    assert (found["abandoned"], found["elsewhere"]) == ({old[-1]: 25}, {"no branch": 1})
    said = expect(project.ci("history", "--check"), code=ExitCode.REGRESSION)  # of all platforms
    assert f"cpu: 25 runs of commits that main does not have, not shown: {tip} (25); see" in said
    assert "cpu: 1 run of other branches not shown: no branch (1); see" in said
    found = json.loads(expect(project.ci("history", "--format", "json")))
    assert found["abandoned"] == {"cpu": {old[-1]: 25}}
    assert found["elsewhere"] == {"cpu": {"no branch": 1}}
    said = expect(project.ci("history", "cpu", "--check", "--branch", tip), "no open regression")
    assert f"tiny: cpu, 32 runs of {tip}\n" in said
    assert "20 runs of other branches not shown: main (20);" in said
    assert "does not have" not in said


def test_complete_runs_that_search_a_commit_are_kept_apart(project: Project) -> None:
    """Those of the tests or of the total run all stages. They are no sample of the history."""
    commits = project.measure_each(noisy(100, 20))
    for number in range(10):
        command = "bisect" if number < 4 else "rerun-alarm"
        marked = {**ENVIRONMENT, "search": {"command": command}}
        project.run(commits[-2 - number % 2], result(150, environment=marked))
    said = expect(project.ci("history", "cpu", "--check"), "no open regression")
    assert "tiny: cpu, 20 runs of main\n" in said
    assert said.count("10 runs not shown, of rerun-alarm (6), bisect (4)") == 1
    assert "other branches" not in said
    said = expect(project.ci("history", "--check"), "no open regression")
    assert "cpu: 10 runs not shown, of rerun-alarm (6), bisect (4)" in said
    with project.open() as store:
        run = store.load(project.runs[-1])
        store.save(run, {})  # as an import does: the mark is in the results
        assert store.heads(last=1)[0].asked_by == "rerun-alarm"


def test_runs_that_search_a_commit_hide_no_regression(project: Project) -> None:
    """A busy machine, on which an alarm was run again, does not change how commits compare."""
    commits = project.measure_each([*noisy(100, 12), *noisy(130, 8, 2)])
    versions = ("run-011", "run-019/cpu", "--fail-on", "regression")
    before = expect(project.compare(*versions), "regression: install", code=ExitCode.REGRESSION)
    for number in range(10):
        marked = {**ENVIRONMENT, "search": {"command": "rerun-alarm"}}
        seconds = (110 + 90 * number % 200) * (1, 1.3)[number % 2]
        project.run(commits[11 + number % 2], result(seconds, environment=marked))
    assert project.compare(*versions) == (ExitCode.REGRESSION, before)


def test_commits_of_main_that_no_one_pushed_are_kept_apart(project: Project) -> None:
    """Except for those of the reader. Once they are pushed, they are on the line of all."""
    project.measure_each(noisy(100, 12))
    remote, job = project.folder / "remote", project.folder / "job"
    git(project.folder, "clone", "--quiet", "--bare", project.source.as_uri(), str(remote))
    git(project.source, "remote", "add", "origin", remote.as_uri())
    git(project.source, "fetch", "--quiet", "origin")
    git(project.folder, "clone", "--quiet", remote.as_uri(), str(job))
    mine = project.measure_each(noisy(150, 8, 2))
    reading = ("history", "cpu", "--check", "--source")
    said = expect(project.ci(*reading, str(job)), "no open regression")
    assert "tiny: cpu, 12 runs of main\n" in said
    assert f"8 runs of commits that main does not have, not shown: {mine[-1][:12]} (8)" in said
    said = expect(project.ci(*reading, str(project.source)), code=ExitCode.REGRESSION)
    assert "tiny: cpu, 20 runs of main\n" in said
    git(project.source, "push", "--quiet", "origin", "main")
    project.run(mine[-1], result(150), lineage=read_lineage(project.source, mine[-1], {}))
    said = expect(project.ci(*reading, str(job)), code=ExitCode.REGRESSION)
    assert "tiny: cpu, 21 runs of main\n" in said


def test_a_rebased_branch_has_its_new_commits_only(project: Project) -> None:
    project.measure_each(noisy(100, 6))
    project.branch("topic")
    old = project.measure_each(noisy(150, 6, 2))
    git(project.source, "reset", "--quiet", "--hard", "main")
    project.measure_each(noisy(100, 6, 3))
    said = expect(project.ci("history", "cpu", "--check", "--branch", "topic"), "no open regr")
    assert "tiny: cpu, 12 runs of topic\n" in said
    assert f"6 runs of commits that topic does not have, not shown: {old[-1][:12]} (6)" in said


def test_what_a_pull_merged_is_still_on_the_line(project: Project) -> None:
    """The first parent of such a merge is the own commit, not what others pushed."""
    project.measure_each(noisy(100, 6))
    project.branch("mine")
    project.commit()
    project.branch("main")
    project.measure_each(noisy(100, 6, 2))
    project.branch("mine")
    git(project.source, "merge", "--quiet", "--no-ff", "-m", "pull", "main")
    git(project.source, "branch", "--quiet", "--force", "main", "mine")
    project.branch("main")
    project.run(project.main, lineage=read_lineage(project.source, project.main, {}))
    project.measure_each(noisy(100, 3, 3))
    found = history(project)
    assert (found["runs"], found["abandoned"]) == (16, {})


def test_a_renamed_branch_keeps_its_runs(project: Project) -> None:
    git(project.source, "branch", "--quiet", "--move", "main", "master")
    project.measure_each(noisy(100, 25))
    git(project.source, "branch", "--quiet", "--move", "master", "main")
    project.measure_each(noisy(120, 15, 2))
    said = expect(project.ci("history", "cpu", "--check"), code=ExitCode.REGRESSION)
    assert "tiny: cpu, 40 runs of main\n" in said
    assert "not shown" not in said


def test_the_line_of_a_renamed_branch_goes_on_beyond_the_recorded_ancestors() -> None:
    """Each run recorded 200 ancestors; the runs before the change of the name know more."""
    commits = [f"{number:040x}" for number in range(1_000)]
    heads, ancestors = [], {}
    for number, commit in enumerate(commits):
        branch = "master" if number < 950 else "main"
        heads.append(head(commit, number, branch=branch, main_branch=branch, depth=number + 1))
        before = commits[max(number - MOST_ANCESTORS, 0) : number]
        ancestors[heads[-1].run_id] = CommitParents(ancestors=tuple(before[::-1]))
    line = Ancestry(heads, lambda ids: {it: ancestors[it] for it in ids}).line()
    assert (line.branch, len(line.runs), line.abandoned) == ("main", 1_000, {})


def head(commit: str, number: int, **changes: Any) -> RunHead:
    """A run of a commit, an hour after the one before."""
    started = BEGIN + timedelta(hours=number)
    fields = {
        "run_id": f"run-{number:03}",
        "project": "tiny",
        "commit": commit,
        "dirty": False,
        "started_at": started,
        "finished_at": started,
        "platforms": ("cpu",),
        "begun": ("cpu",),
    }
    return RunHead(**{**fields, **changes})


def test_an_unknown_branch_is_reported(project: Project) -> None:
    project.measure()
    said = expect(project.ci("history", "cpu", "--branch", "mian"), code=ExitCode.USAGE)
    assert "the store holds no run of branch 'mian'; did you mean 'main'?" in said
    assert "Branches with runs: main." in said


AHEAD = {n: {"started_at": BEGIN + timedelta(hours=n + 12)} for n in (5, 9, 13, 17)}
BEHIND = {n: {"started_at": BEGIN + timedelta(hours=n - 12)} for n in (13, 17)}
FUTURE = {7: {"started_at": BEGIN.replace(year=2099)}}


@pytest.mark.parametrize("stamps", [AHEAD, BEHIND, FUTURE], ids=["ahead", "behind", "2099"])
@pytest.mark.parametrize("depth", narrowed(["full", "shallow"], kept=1))
def test_clocks_do_not_order_runs(
    project: Project, stamps: dict[int, dict[str, Any]], depth: str
) -> None:
    for number, seconds in enumerate([*noisy(100, 12, 1), *noisy(125, 8, 2)]):
        changes = stamps.get(number, {})
        if times := changes.get("started_at"):
            changes = {**changes, "finished_at": times + timedelta(minutes=30)}
        commit = project.commit()
        lineage = read_lineage(project.source, commit, {})
        if depth == "shallow":  # as a clone with a depth of 1 records it
            lineage = lineage.model_copy(
                update={"ancestors": lineage.ancestors[:1], "depth": None, "merge_base": None}
            )
        project.run(commit, result(seconds), lineage=lineage, **changes)
    code, said = project.ci("history", "cpu", "--check", "--format", "json")
    assert code == ExitCode.REGRESSION
    [environment] = json.loads(said)["environments"]
    [shift] = environment["shifts"]
    assert shift["changes"][0]["last_run_before"]["run_id"] == "run-011"
    assert shift["changes"][0]["first_run_after"]["run_id"] == "run-012"
    last = history(project, "--last", "4")
    assert last["environments"][0]["first_run"]["run_id"] == "run-016"


def test_runs_of_a_merged_branch_are_on_the_line_of_main(project: Project) -> None:
    project.measure()
    project.branch("topic")
    for _ in range(3):
        project.measure()
    project.branch("main")
    git(project.source, "merge", "--quiet", "--ff-only", "topic")
    project.measure()
    said = project.ci("history", "cpu")[1]
    assert "tiny: cpu, 5 runs of main\n" in said


def test_runs_of_old_versions_stay_in_order_of_time(project: Project) -> None:
    for _ in range(3):
        project.run(project.commit())
    project.measure()
    project.run(None)
    found = history(project)
    [environment] = found["environments"]
    assert (found["branch"], environment["runs"]) == ("main", 5)
    ends = (environment["first_run"]["run_id"], environment["last_run"]["run_id"])
    assert ends == ("run-000", "run-004")


def test_a_detached_head_belongs_to_main_only_if_main_contains_it(project: Project) -> None:
    first, _ = project.measure(), project.measure()
    git(project.source, "checkout", "--quiet", "--detach", first)
    project.run(first, lineage=read_lineage(project.source, first, {}))
    project.measure()
    assert "1 run of other branches not shown: no branch (1)" in project.ci("history", "cpu")[1]


def test_forged_ancestors_end(project: Project) -> None:
    """Two commits that claim to be the parents of each other, in an imported run."""
    first, second = "a" * 40, "b" * 40
    for commit, parent in ((first, second), (second, first)):
        lineage = Lineage(branch="main", parents=(parent,), ancestors=(parent,))
        project.run(commit, lineage=lineage)
    assert "tiny: cpu, 2 runs of main\n" in project.ci("history", "cpu")[1]


def test_a_store_that_is_rebuilt_knows_the_branches(project: Project) -> None:
    measure_both(project, noisy(100, 6), noisy(140, 6, 2))
    with project.open() as store:
        runs = [store.load(run_id) for run_id in project.runs]
    for number, run in enumerate(runs):
        run_id = f"20260101T{number:02}0000Z-nogit-00{number:02x}"
        write_run(project.results / run_id, run.model_copy(update={"run_id": run_id}))
    (project.results / "ci.db").rename(project.results / "lost.db")
    expect(project.ci("import", str(project.results)))
    said = project.ci("history", "cpu")[1]
    assert "tiny: cpu, 6 runs of main\n" in said
    assert "6 runs of other branches not shown: other (6);" in said


# compare


@pytest.fixture(scope="module")
def gained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """``main`` gets 15 % faster after ``feature`` was forked, which changes nothing."""
    project = Project(folder=tmp_path_factory.mktemp("gained"))
    project.measure_each(noisy(100, 10, 1))
    project.branch("feature")
    project.measure_each(noisy(100, 6, 2))
    project.branch("main")
    project.measure_each(noisy(85, 8, 3))
    return project


def without_git(project: Project, folder: Path) -> Project:
    copied = project.copy(folder)
    shutil.rmtree(copied.source / ".git")
    return copied


@pytest.mark.parametrize("has_git", narrowed([True, False], kept=1), ids=["clone", "no clone"])
@pytest.mark.parametrize(
    "sides", [("main", "feature"), ("feature",), ("main", "run-015"), ("main", "feature/cpu")]
)
def test_what_main_gained_is_a_note(
    gained: Project, tmp_path: Path, sides: tuple[str, ...], *, has_git: bool
) -> None:
    project = gained.copy(tmp_path) if has_git else without_git(gained, tmp_path)
    fork = git(gained.source, "merge-base", "main", "feature")[:12]
    said = expect(project.compare(*sides, *FIRM))
    assert f"note: BASE is commit {fork}, the merge base of main and {sides[-1][:7]}" in said
    assert "note: main gained 8 commits since the merge base: not compared\n" in said
    assert re.search(r"note: cpu: main since .*: improvement: install -1\d s \(-1\d %", said)
    assert f"base  run-009/cpu (commit {fork}, the merge base)" in said
    document = json.loads(project.compare(*sides, "--format", "json")[1])
    assert document["merge_base"]["commit"].startswith(fork)
    assert (len(document["merge_base"]["nearest"]), document["merge_base"]["gained"]) == (3, 8)
    assert document["platforms"][0]["gained"]


def test_the_clone_knows_the_merge_base_of_runs_that_recorded_none(project: Project) -> None:
    project.history(noisy(100, 8, 1))
    project.branch("feature")
    project.history(noisy(100, 6, 2))
    project.branch("main")
    project.history(noisy(85, 8, 3))
    expect(project.compare("main", "feature", *FIRM), "the merge base of main and feature")


def test_what_the_branch_costs_is_a_regression(gained: Project, tmp_path: Path) -> None:
    """Compared with the tip of main, it would be 29 % instead of 10 %."""
    project = gained.copy(tmp_path)
    project.branch("feature")
    commit = project.commit()
    for seconds in noisy(110, 6, 4):
        lineage = read_lineage(project.source, commit, {})
        project.run(commit, result(seconds), lineage=lineage)
    said = expect(project.compare("feature", *FIRM), code=ExitCode.REGRESSION)
    assert re.search(r"^regression: install \+\d+(\.\d)? s \(\+(9|10|11|9\.\d) %\)", said, re.M)


def test_tests_that_main_added_are_not_missed(project: Project) -> None:
    base = {"test_a.py::test_one": Outcome.PASSED}
    project.measure(outcomes=base)
    project.branch("feature")
    project.measure(outcomes=base)
    project.branch("main")
    project.measure(outcomes={**base, "test_a.py::test_new": Outcome.PASSED})
    code, said = project.compare("main", "feature", *FIRM)
    assert (code, "vanished" in said) == (ExitCode.PASSED, False)


def test_a_merge_base_without_a_run_has_three_nearest_commits(project: Project) -> None:
    commits = project.measure_each((90, 100, 104, 96))
    fork = project.commit()
    project.branch("feature")
    project.measure(result(100))
    project.branch("main")
    project.measure(result(50))
    said = expect(project.compare("feature"))
    near = ", ".join(f"commit {it[:12]}" for it in commits[:0:-1])
    assert f"note: the merge base of main and feature, commit {fork[:12]}, has no run; " in said
    assert f"; the nearest with one: {near}\n" in said
    assert f"base  run-003/cpu (commit {commits[3][:12]}, 1 commit before the merge base)" in said
    found = json.loads(project.compare("feature", "--format", "json")[1])
    measures = {it["measure"]: it for it in found["platforms"][0]["times"]["measures"]}
    install = measures["install.wall_s"]
    assert [install["base"], install["before"]] == pytest.approx([95.75, 99.75])


def test_the_test_merge_of_a_pull_request_is_compared_with_its_target(project: Project) -> None:
    """The commit exists in the clone of the CI job alone; the branch has another one."""
    project.measure(result(100))
    project.branch("feature")
    tip = project.commit()
    project.branch("main")
    target = project.measure(result(50))
    merge = "d" * 40
    lineage = Lineage(
        branch="feature",
        main_branch="main",
        target="main",
        merge_commit=True,
        parents=(target, tip),
        ancestors=(target,),
        merge_base=target,
    )
    project.run(merge, result(51), lineage=lineage)
    project.measure(result(40))
    for head, place in (("feature", " of feature"), ("run-002", "")):
        said = expect(project.compare("main", head))
        assert f"base  run-001/cpu (commit {target[:12]}, the merge base)" in said
        assert "head  run-002/cpu" + (place and f" (commit {merge[:12]}{place})") in said
    assert history(project, "--branch", "feature")["runs"] == 3


def test_the_main_branch_is_compared_with_its_commits_before(project: Project) -> None:
    first = project.measure(result(100))
    code, said = project.compare("main")
    assert code == ExitCode.USAGE
    assert "got no BASE, and no commit of 'main' before 'main' has a run: expected two" in said
    project.commit("not measured")
    last = project.measure(result(100))
    for head in ("main", "latest", "run-001"):
        said = expect(project.compare(head))
        before = f"{last[:12]}~1"
        assert f"base  run-000/cpu (commit {first[:12]}, 1 commit before {before})" in said
        assert "head  run-001/cpu" in said
    project.run(None)
    assert project.compare("latest")[0] == ExitCode.PASSED


def test_a_shallow_clone_lacks_the_commits_before(project: Project) -> None:
    project.commit("not measured")
    project.measure(result(100))
    origin = project.source.rename(project.folder / "origin")
    git(project.folder, "clone", "--quiet", "--depth=1", origin.as_uri(), str(project.source))
    said = expect(project.compare("main"), code=ExitCode.USAGE)
    assert "got no BASE, and no commit of 'main' before 'main' has a run: expected two" in said
    assert f"{project.source} is a shallow clone. Fetch its history: git fetch --unshallow" in said


def test_without_recorded_branches_both_sides_are_named(project: Project) -> None:
    project.run(project.main)
    said = expect(project.compare("main"), code=ExitCode.USAGE)
    assert "compare: got no BASE, and no run recorded a branch: expected two references" in said
