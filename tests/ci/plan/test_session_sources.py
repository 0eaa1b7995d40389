"""``shell`` and ``rerun`` before anything runs: which run, which sources, which plan."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ci import cli
from ci.errors import ExitCode, UsageError
from ci.model.plan import SESSION_LABEL, RunPlan
from ci.plan.project import load_project, plan_run
from ci.plan.request import read_request
from ci.plan.session import SHELL, kept_plan, rerun_plan, shell_plan
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.run.session import Recorded, recorded_sources
from tests.ci.workplace import Workplace, new_workplace


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return new_workplace(tmp_path)


def recorded(work: Workplace) -> Recorded:
    """Run the project, and return what was recorded."""
    result, _ = work.run()
    request = read_request(work.results, result.run_id)
    return Recorded(request=request, result=result.platforms[0], results=work.results)


def refused(before: Recorded, message: str, *, only_configuration: bool = False) -> str:
    """Refuse the sources of a run, and return the remedy."""
    with (
        pytest.raises(UsageError, match=message) as caught,
        recorded_sources(before, only_configuration=only_configuration),
    ):
        pass
    return str(caught.value.remedy)


def test_unchanged_sources_are_used_in_their_place(work: Workplace) -> None:
    before = recorded(work)
    with recorded_sources(before) as sources:
        assert (sources.folder, sources.notes) == (work.folder / "source", ())


def test_changed_sources_are_those_of_the_commit(work: Workplace) -> None:
    work.commit()
    work.write("tests/test_a.py", "not committed")
    before = recorded(work)
    work.write("ci.yaml", "not a configuration")
    with recorded_sources(before) as sources:
        assert sources.folder != work.folder / "source"
        assert "not committed" not in (sources.folder / "tests" / "test_a.py").read_text()
        assert sources.project.path == sources.folder / "ci.yaml"
        why, dirty = sources.notes
    assert why.endswith("source/ci.yaml has changed since the run began")
    assert dirty.startswith("the run had uncommitted changes, which are not recorded: this is com")
    assert not sources.folder.exists()


def test_changed_sources_without_a_commit(work: Workplace) -> None:
    before = recorded(work)
    work.write("tests/test_a.py", "changed")  # else it is the same commit, in the same second
    remedy = refused(before, r"are gone: files in .* and the run had no commit")
    assert remedy == "Undo the changes, or start a new run."


def test_a_clone_without_the_commit(work: Workplace) -> None:
    work.commit()
    before = recorded(work)
    shutil.rmtree(work.folder / "source" / ".git")
    work.write("tests/test_a.py", "changed")  # else it is the same commit, in the same second
    work.commit()
    remedy = refused(before, r"the clone .* has no commit .*, the sources of run")
    assert f"fetch origin {before.request.commit}" in remedy


def test_only_the_configuration_counts(work: Workplace) -> None:
    before = recorded(work)
    work.write("tests/test_a.py", "changed")
    with recorded_sources(before, only_configuration=True) as sources:
        assert (sources.folder, sources.notes) == (work.folder / "source", ())
    work.write("ci.yaml", "changed")
    changed = r"are gone: .*ci\.yaml has changed since the run began"
    refused(before, changed, only_configuration=True)


def test_a_bundle_with_other_files(work: Workplace) -> None:
    before = recorded(work)
    request = before.request.model_copy(update={"bundle": Path("a.tar")})
    work.write("tests/test_a.py", "changed")
    other = replace(before, request=request)
    refused(other, r"a\.tar is not the bundle of run .*: files in")


def test_sources_that_are_gone(work: Workplace) -> None:
    work.commit()
    before = recorded(work)
    shutil.rmtree(work.folder / "source")
    refused(before, "source no longer exists")


def planned(work: Workplace) -> RunPlan:
    project = load_project(work.folder / "source" / "ci.yaml", {})
    [plan] = plan_run(project, ["cpu"], run_id="a", source=project.source, results=work.results)
    return plan


def test_the_plan_of_a_session(work: Workplace) -> None:
    plan = planned(work)
    shell = shell_plan(plan, results=work.folder)
    build, stage = shell.stages
    assert build == plan.stages[0]
    assert (stage.name, stage.kind, stage.hold) == (SHELL, StageKind.COMMAND, True)
    assert (stage.column, stage.credentials) == (Column.NONE, False)
    assert stage.environment == plan.stages[1].environment
    labels = shell.container.labels
    assert labels == {**plan.container.labels, SESSION_LABEL: "1"}
    assert shell.container.shared_labels == plan.container.shared_labels
    assert (shell.artifacts, shell.contract) == ((), None)
    *before, test = rerun_plan(plan, results=work.folder, test="t.py::test_a").stages
    assert (*before, test.name) == (plan.stages[0], "pytest")
    assert (test.only, test.reruns) == (("t.py::test_a",), 0)
    assert rerun_plan(plan, results=work.folder, test=None).stages == plan.stages
    unchanged = ("image", "network", "devices", "cache", "trust", "environment")
    assert [it for it in unchanged if getattr(shell, it) != getattr(plan, it)] == []


def test_the_plan_of_a_shell_in_what_a_run_kept(work: Workplace) -> None:
    plan = planned(work)
    plan = replace(plan, network=replace(plan.network, credentials={"PIP_INDEX_URL": "secret"}))
    kept = kept_plan(plan, session="a-session-1")
    [stage] = kept.stages
    assert (stage.name, stage.hold, stage.credentials) == (SHELL, True, False)
    assert stage.environment == plan.stages[1].environment
    assert kept.network.credentials == {}
    assert kept.container.name == f"{plan.container.name}-kept"
    assert kept.container.results == "/opt/infini-ci/a-session-1"  # those of the run stay
    assert kept.container.labels == plan.container.labels
    unchanged = ("results", "image", "devices", "cache", "trust", "environment")
    assert [it for it in unchanged if getattr(kept, it) != getattr(plan, it)] == []


def test_the_options_of_the_run_with_a_warm_cache_and_one_process(work: Workplace) -> None:
    before = recorded(work)
    changes = {"cold": True, "reruns": 3, "shards": 4, "selected": "abs", "trust": "release"}
    again = replace(before, request=before.request.model_copy(update=changes))
    options = again.options
    assert (options.cold, options.reruns) == (False, 0)
    # A shell has the devices of one shard, as each test had.
    with recorded_sources(again) as sources:
        assert again.plan(sources, "a", work.results).shards == 1
    assert (options.selected, options.trust) == ("abs", "release")
    assert options.engines == before.request.engines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("shell", "latst", "cpu"), "the store holds no run 'latst'; did you mean 'latest'?"),
        (("shell", "latest", "cpus"), "has cpu, not 'cpus'; did you mean 'cpu'?"),
        (
            ("rerun", "latest", "cpu", "tests/test_a.py::test_b"),
            "/cpu has no test 'tests/test_a.py::test_b'; did you mean 'tests/test_a.py::test_a'?",
        ),
    ],
)
def test_wrong_names(
    work: Workplace, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    work.run()
    assert cli.main([*words, "--results", str(work.results)]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_an_imported_run_has_no_sources_here(
    work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    result, _ = work.run()
    (work.results / result.run_id / "request.json").write_text('{"imported": true}')
    words = ("shell", result.run_id, "cpu", "--results", str(work.results))
    assert cli.main([*words]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"shell: run {result.run_id} was imported, expected a run that began here" in error
    assert "Use shell on the machine where it began: an import copies neither" in error
