"""The dashboard without a browser: its folder, its data, and stores that are small or damaged."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from ci import cli
from ci.errors import ExitCode
from ci.facts.measures import Quantity, amount
from ci.facts.sentences.on_rows import contract_differs
from ci.model.outcomes import Outcome
from ci.model.verdicts import Harness, Product
from ci.report.dashboard import runs, search
from ci.report.dashboard import site as site_module
from ci.report.dashboard.html import clean, file_stem, script, spark_path
from ci.store.folder import default_url, lock_run
from ci.store.store import Store
from ci.util.files import write_atomically
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import BEGIN, ENVIRONMENT, Project, expect, git, noisy, result
from tests.ci.written_site import FAILED, begin, data, write


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(folder=tmp_path)


# The folder


def test_an_earlier_dashboard_is_replaced(project: Project) -> None:
    project.history([100.0])
    code, site = write(project)
    assert code == ExitCode.PASSED
    [old] = site.glob("run-*.html")
    project.history([100.0])
    assert write(project, "--runs", "1")[0] == ExitCode.PASSED
    assert not old.exists()
    assert [path.name for path in site.glob("run-*.html")] == ["run-run-001.html"]


def test_programs_read_what_was_written(project: Project) -> None:
    project.history([100.0])
    site = project.folder / "site"
    code, output = project.ci("dashboard", "--output", str(site), "--format", "json")
    assert code == ExitCode.PASSED
    files = [path for path in site.rglob("*") if path.is_file()]
    assert json.loads(output) == {
        "index": str(site / "index.html"),
        "pages": len([*site.glob("*.html")]),
        "bytes": sum(path.stat().st_size for path in files),
    }


def test_a_folder_with_other_files_is_not_touched(project: Project) -> None:
    project.history([100.0])
    site = project.folder / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    code, message = project.ci("dashboard", "--output", str(site))
    assert code == ExitCode.USAGE
    assert f"--output: {site}: got a folder with other files" in message
    assert [path.name for path in site.iterdir()] == ["index.html"]
    assert (site / "index.html").read_text() == "mine"


def test_a_file_is_no_folder(project: Project) -> None:
    project.history([100.0])
    code, message = project.ci("dashboard", "--output", str(project.results / "ci.db"))
    assert code == ExitCode.USAGE
    assert "got a file, expected an empty folder" in message


def test_a_store_without_runs_is_an_error_of_usage(tmp_path: Path, capsys: Any) -> None:
    words = ["dashboard", "--output", str(tmp_path / "site"), "--results", str(tmp_path)]
    assert cli.main(words) == ExitCode.USAGE
    assert "contains no results yet" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_an_unknown_branch_is_an_error_of_usage(project: Project) -> None:
    project.commit()
    project.measure()
    code, message = project.ci("dashboard", "--output", str(project.folder / "s"), "--branch", "x")
    assert code == ExitCode.USAGE
    assert "the store holds no run of branch 'x'" in message
    assert not (project.folder / "s").exists()


# The data


def test_the_series_are_those_of_the_store(project: Project) -> None:
    installs = [*noisy(100, 12), *noisy(130, 12, seed=2)]
    project.history(installs)
    _, site = write(project)
    found = data(site, "platform-cpu")
    [install] = [it for it in found["measures"] if it["name"] == "install.wall_s"]
    assert install["values"] == pytest.approx([it - 0.25 for it in installs], rel=1e-5)
    [mark] = [it for it in found["marks"] if it["measure"] == "install.wall_s"]
    assert (mark["kind"], mark["at"]) == ("open regression", 12)
    levels = [it for it in found["levels"] if it["measure"] == "install.wall_s"]
    assert [(it["from"], it["to"]) for it in levels] == [(0, 11), (12, 23)]
    assert [it["level"] for it in levels] == pytest.approx([100, 130], rel=0.01)
    page = (site / "index.html").read_text(encoding="utf-8")
    assert '<li data-kind="regression" data-platforms="cpu">' in page


def test_the_pages_of_runs_are_in_one_order(project: Project) -> None:
    project.history([100.0] * 10)
    _, site = write(project)
    pages = [*data(site, "runs")["pages"]]
    assert len(pages) == 10
    assert pages == sorted(pages)


def run_rows(site: Path) -> list[str]:
    """The rows of the list of runs."""
    page = (site / "runs.html").read_text(encoding="utf-8")
    return re.findall(r'<tr id="(?s:.*?)</tr>', page)


def test_every_run_is_listed_with_its_results(project: Project) -> None:
    machine = {"cpu_model": "a CPU", "hostname": "builder-1"}
    here = {**ENVIRONMENT, "machine": machine}
    first = project.measure(result(environment=here))
    project.run(first, result(verdict=FAILED, environment=here), result(platform="moore"))
    project.branch("topic")
    lost = made_verdict(Product.INCOMPLETE, "lost", harness=Harness.LOST)
    project.measure(result(verdict=lost), dirty=True)
    _, site = write(project, "--runs", "1")
    [newest, again, oldest] = run_rows(site)
    # The newest has a page; the others of the branch lead to the plots of their platforms.
    assert '<a href="run-run-002.html#cpu">cpu</a> (lost)' in newest
    assert "with uncommitted changes<br>topic" in newest
    for row, run_id in ((again, "run-001"), (oldest, "run-000")):
        assert f'<tr id="{run_id}">' in row
        assert f'<code class="whole">{first[:12]}</code>' in row  # one commit, two runs
        assert f'<a href="platform-cpu.html#run={run_id}">cpu</a>' in row
        assert '<td class="number">0:30:00</td><td>host</td><td class="hosts">builder-1' in row
    assert again.index("failed") < again.index("passed</span>")
    assert "All runs, of all branches" in (site / "runs.html").read_text(encoding="utf-8")


def test_the_list_of_runs_ends_at_a_stated_number(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.history([100.0] * 3)
    monkeypatch.setattr(runs, "MOST_RUNS", 2)
    _, site = write(project)
    assert [row[:17] for row in run_rows(site)] == ['<tr id="run-002">', '<tr id="run-001">']
    page = (site / "runs.html").read_text(encoding="utf-8")
    assert "The newest 2 of 3 runs." in page


def test_an_accepted_rise_is_marked_as_one(project: Project) -> None:
    commits = project.history([*noisy(100, 12), *noisy(130, 12, seed=2)])
    project.configure()
    assert project.accept("run-012", "--reason", "a new torch")[0] == 0
    _, site = write(project)
    marks = data(site, "platform-cpu")["marks"]
    assert {it["kind"] for it in marks if it["measure"] == "install.wall_s"} == {"accepted rise"}
    page = (site / "platform-cpu.html").read_text(encoding="utf-8")
    assert f"since commit {commits[12][:12]}: a new torch" in page


def test_a_run_that_is_going_on_is_shown_as_running(project: Project) -> None:
    project.run(project.commit(), result(), result(platform="moore"))
    folder, run_id = begin(project)
    with lock_run(folder):
        _, site = write(project)
    pages = {path.name: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    refreshed = {name for name, page in pages.items() if 'http-equiv="refresh"' in page}
    assert refreshed == {"index.html", "runs.html", f"run-{run_id}.html"}
    for name in refreshed:
        assert re.search(rf"running</span> at .*run {run_id}<", pages[name])
        assert re.search(r"passed</span> cpu, .*no result yet</span> moore<", pages[name])
    [row, before] = run_rows(site)
    assert "not run" not in row
    assert "running</span></td>" in row
    assert "running" not in before
    # What is still to come needs no attention, and hides no earlier result.
    assert "Nothing: the newest run of every platform passed" in pages["index.html"]
    section = pages[f"run-{run_id}.html"].partition('id="moore"')[2]
    assert "no result yet</span>" in section
    assert "Harness" not in section


def test_a_run_whose_process_died_is_not_running(project: Project) -> None:
    folder, run_id = begin(project)
    lock_run(folder).__exit__(None, None, None)  # the kernel releases the lock of a dead process
    _, site = write(project)
    for path in site.glob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert 'http-equiv="refresh"' not in page
        assert "badge running" not in page
    [row] = run_rows(site)
    assert re.search(r"not run</span> <a [^>]*>moore</a> \(its run ended before\)", row)
    assert run_id in row


def test_a_page_is_never_missing_while_a_dashboard_is_replaced(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.history([100.0])
    _, site = write(project)
    before = {path: path.stat().st_ino for path in site.rglob("*.*")}
    missing: list[Path] = []

    def check(path: Path, text: str) -> None:
        missing.extend(it for it in before if not it.exists())
        write_atomically(path, text)

    monkeypatch.setattr(site_module, "write_atomically", check)
    assert write(project)[0] == ExitCode.PASSED
    assert missing == []
    assert {path for path in before if path.stat().st_ino == before[path]} == {site / ".dashboard"}


def risen(site: Path) -> dict[str, list[str]]:
    """The rows of each section of the page of regressions."""
    page = (site / "regressions.html").read_text(encoding="utf-8")
    sections = re.findall(r'<h2 id="(\w+)-title">(?s:(.*?))</section>', page)
    return {name: re.findall(r"<tr><th scope=\"row\">(?s:.*?)</tr>", it) for name, it in sections}


def test_open_regressions_are_those_of_the_check(project: Project) -> None:
    both = zip([*noisy(100, 12), *noisy(130, 12, seed=2)], noisy(100, 24, seed=3), strict=True)
    for risen_install, install in both:
        project.measure(result(risen_install), result(install, platform="moore"))
    _, output = project.ci("history", "--check", "--format", "json")
    [alarm] = json.loads(output)["alarms"]
    [row] = alarm["rows"]
    found = risen(write(project)[1])
    [shown] = found["open"]
    run_id = row["change"]["first_run_after"]["run_id"]
    place = f"platform-cpu.html#measure={row['change']['measure']}&amp;cache=warm&amp;run={run_id}"
    assert f'<a href="{place}">cpu</a>' in shown
    assert f"commit <code>{row['change']['first_run_after']['commit'][:12]}</code>" in shown
    levels = [amount(row["change"][name], Quantity.WALL) for name in ("before", "after")]
    assert " → ".join(levels) in shown
    assert (found["suspected"], found["closed"]) == ([], [])
    assert f'<p class="state">alarm {alarm["id"]}: open</p>' in written(project, "regressions.html")


def written(project: Project, page: str) -> str:
    return (write(project)[1] / page).read_text(encoding="utf-8")


def test_an_alarm_that_is_marked_as_invalid_needs_no_attention(project: Project) -> None:
    project.measure_each([*noisy(100, 12), *noisy(130, 12, seed=2)])
    [alarm] = json.loads(project.ci("alarms", "--json")[1])["alarms"]
    assert alarm["headline"] in written(project, "index.html")
    words = ("--invalid", "--note", "<b>", "--by", "Ann", "--link", "https://h/7")
    expect(project.ci("alarms", alarm["id"], *words), "issue: https://h/7")
    found = risen(write(project)[1])
    assert (len(found["invalid"]), found["open"]) == (1, [])
    page = written(project, "regressions.html")
    assert f'<p class="state">alarm {alarm["id"]}: invalid, says Ann on ' in page
    assert ": &lt;b&gt;; issue: https://h/7</p>" in page
    assert alarm["headline"] not in written(project, "index.html")


def test_closed_regressions_say_how_they_ended(project: Project) -> None:
    levels = (100, 130, 100, 150)
    installs = [it for n, level in enumerate(levels) for it in noisy(level, 12, seed=n)]
    project.history(installs)
    project.configure()
    assert project.accept("run-036", "--reason", "a <new> torch")[0] == 0
    found = risen(write(project)[1])
    assert found["open"] == []
    [accepted, undone] = found["closed"]
    assert "run run-036</td>" in accepted
    assert "a &lt;new&gt; torch" in accepted
    assert "undone by run-024 (commit " in undone


def test_a_rise_that_is_not_confirmed_is_suspected(project: Project) -> None:
    project.history([*noisy(100, 12), *noisy(150, 3, seed=2)])
    [suspected] = risen(write(project)[1])["suspected"]
    assert "not confirmed yet: 2 more runs may confirm it" in suspected


def test_a_rise_with_another_compiler_is_no_open_regression(project: Project) -> None:
    project.history(noisy(100, 12))
    project.history(noisy(130, 12), environment={**ENVIRONMENT, "compiler": "g++ 13.1"})
    found = risen(write(project)[1])
    assert found["open"] == []
    [shown] = found["environment"]
    assert "cause: compiler changed: g++ 12.2 -&gt; g++ 13.1" in shown


def test_environments_that_differ_in_the_cache_share_a_band(project: Project) -> None:
    project.commit()
    for state in ("warm", "cold", "warm"):
        cache = {"tool": "ccache", "state": state, "hit_rate": 0.9}
        project.measure(result(environment={**ENVIRONMENT, "compiler_cache": cache}))
    project.measure(result(environment={**ENVIRONMENT, "compiler": "g++ 13.1"}))
    _, site = write(project)
    found = data(site, "platform-cpu")
    environments = [found["environments"][it] for it in found["environment"]]
    assert [it["band"] for it in environments] == [0, 0, 0, 1]
    assert environments[1]["cache"] == "cold compiler cache"


def test_machines_differ_in_processor_and_devices_but_not_in_host(project: Project) -> None:
    project.commit()
    machine = ENVIRONMENT["machine"]
    for changes in (
        {"machine": {**machine, "hostname": "one"}},
        {"machine": {**machine, "hostname": "two"}, "compiler": "g++ 13.1"},
        {"machine": {**machine, "cores": 8}},
        {"devices": [{"uuid": "a", "name": "a GPU"}]},
    ):
        project.measure(result(environment={**ENVIRONMENT, **changes}))
    found = data(write(project)[1], "platform-cpu")
    assert found["machines"] == [
        "a CPU, 2 cores, 4 GiB",
        "a CPU, 8 cores, 4 GiB",
        "a CPU, 2 cores, 4 GiB; 1 x a GPU",
    ]
    machines = [found["environments"][it]["machine"] for it in found["environment"]]
    assert machines == [0, 0, 1, 2]


def test_the_failing_commit_is_the_first_of_the_streak(project: Project) -> None:
    project.history([100.0])
    commits = [project.commit() for _ in range(3)]
    outcomes = {"test_a.py::test_one": Outcome.FAILED, "test_a.py::test_two": Outcome.SKIPPED}
    for commit in commits[1:]:
        project.run(commit, result(verdict=FAILED), outcomes=outcomes)
    _, site = write(project)
    page = (site / "index.html").read_text(encoding="utf-8")
    assert f"failed, since commit {commits[1][:12]}" in page
    assert "2 runs" in page
    assert f"--bad {commits[1]} --test test_a.py::test_one" in page


def test_vanished_tests_and_outdated_contracts_need_attention(project: Project) -> None:
    project.history([100.0])
    note = contract_differs(["3 tests added"], "python -m ci contract cpu")
    project.run(
        project.commit(), result(findings=(note,)), outcomes={"test_a.py::test_one": Outcome.PASSED}
    )
    _, site = write(project)
    page = (site / "index.html").read_text(encoding="utf-8")
    assert '<li data-kind="smaller suite" data-platforms="cpu">' in page
    assert "1 test vanished" in page
    assert "3 tests added; update with: python -m ci contract cpu" in page


def test_a_project_without_operator_tests_has_a_dashboard(project: Project) -> None:
    project.history([100.0])
    code, site = write(project)
    assert code == ExitCode.PASSED
    assert not (site / "operators.html").exists()
    assert not (site / "data" / "operators.js").exists()
    assert [it.name for it in site.glob("*.html") if "Operators" in it.read_text()] == []
    assert "There is only one run so far." in (site / "compare.html").read_text()
    assert "<p>1 run. Written on" in (site / "compare.html").read_text()


def test_an_overload_has_the_worst_status_that_applies(project: Project) -> None:
    names = {
        "a.out-float32": Outcome.PASSED,
        "a.out-int64": Outcome.SKIPPED,
        "b.out-float32": Outcome.PASSED,
        "b.out-int64": Outcome.FAILED,
        "c.out-float32": Outcome.SKIPPED,
    }
    outcomes = {f"t.py::test[{name}-cpu-slot8]": it for name, it in names.items()}
    project.run(project.commit(), outcomes=outcomes)
    _, site = write(project)
    found = data(site, "operators")
    [cpu] = found["platforms"]
    statuses = [found["statuses"][int(it)]["name"] for it in cpu["status"]]
    assert dict(zip(found["overloads"], statuses, strict=True)) == {
        "a.out": "passed",
        "b.out": "failed",
        "c.out": "skipped",
    }


# Commits and their runs


def headings(site: Path) -> list[str]:
    """The headings of the columns of commits, as HTML."""
    page = (site / "index.html").read_text(encoding="utf-8")
    return re.findall(r'<span class="turned">(.*?)</span>', page)


def test_a_single_commit_is_no_plural(project: Project) -> None:
    project.history([100.0])
    page = (write(project)[1] / "index.html").read_text(encoding="utf-8")
    assert "Platforms and the last commit</h2>" in page


def test_runs_without_a_commit_are_named_by_their_time(project: Project) -> None:
    project.configure()
    for _ in range(2):
        project.run(None)
    site = write(project)[1]
    assert headings(site) == ["01-01 12:00", "01-01 13:00"]
    assert "Platforms and the last 2 runs</h2>" in (site / "index.html").read_text(encoding="utf-8")


def test_runs_of_one_minute_have_seconds(project: Project) -> None:
    project.configure()
    for seconds in (5, 40):
        project.run(None, started_at=BEGIN + timedelta(seconds=seconds), finished_at=BEGIN)
    assert headings(write(project)[1]) == ["01-01 12:00:05", "01-01 12:00:40"]


def test_a_cell_counts_the_runs_of_its_commit_and_each_is_linked(project: Project) -> None:
    commit = project.commit()
    project.run(commit, result(verdict=FAILED))
    project.run(commit)
    project.run(commit)
    site = write(project)[1]
    page = (site / "index.html").read_text(encoding="utf-8")
    assert "✓<sup>3</sup></a>" in page
    assert "the newest of 3 runs, 2 of which passed" in page
    rows = re.findall(r'<td class="whole"><a href="(run-run-\d+)\.html#cpu">', page)
    assert rows == ["run-run-002", "run-run-001", "run-run-000"]


def test_a_dirty_commit_has_a_column_of_its_own_name(project: Project) -> None:
    commit = project.commit()
    project.run(commit)
    project.run(commit, dirty=True)
    assert headings(write(project)[1]) == [commit[:8], f"{commit[:8]}+"]


def test_commits_have_subject_author_and_their_page_on_the_forge(project: Project) -> None:
    [commit] = project.history([100.0])
    git(project.source, "remote", "add", "origin", "https://me:secret@github.com/o/n.git")
    site = write(project)[1]
    address = f"https://github.com/o/n/commit/{commit}"
    link = (
        f'<a href="{address}"><code>{commit[:12]}</code></a> change <span class="author">a</span>'
    )
    assert headings(site) == [f'<a href="{address}">{commit[:8]}</a>']
    assert 'title="change (a)"' in (site / "index.html").read_text(encoding="utf-8")
    for name in ("index.html", "run-run-000.html"):
        assert link in (site / name).read_text(encoding="utf-8")
    assert data(site, "runs")["about"] == {commit[:12]: "change (a)"}
    files = [it for it in site.rglob("*.*") if "secret" in it.read_text(encoding="utf-8")]
    assert files == []


def test_a_commit_that_the_repository_does_not_know_gets_no_link(project: Project) -> None:
    project.commit()
    git(project.source, "remote", "add", "origin", "https://github.com/o/n.git")
    project.run("0" * 40)
    site = write(project)[1]
    assert headings(site) == ["0" * 8]
    assert data(site, "runs")["about"] == {}


def test_a_failure_names_the_commit_that_it_began_with(project: Project) -> None:
    project.history([100.0])
    project.run(project.commit("break it"), result(verdict=FAILED))
    page = (write(project)[1] / "index.html").read_text(encoding="utf-8")
    assert 'break it <span class="author">a</span>' in page.partition('id="grid-title"')[0]


def test_what_alarms_is_among_the_first_measures(project: Project) -> None:
    installs = [*noisy(100, 12), *noisy(130, 12, seed=2)]
    for seconds in installs:
        [image, install, pytest] = result().stages
        slower = install.model_copy(update={"cpu_user_s": 3 * seconds})
        project.run(
            project.commit(), result().model_copy(update={"stages": (image, slower, pytest)})
        )
    _, site = write(project)
    assert 'cpu.html#measure=install.cpu_s"' in (site / "index.html").read_text(encoding="utf-8")
    assert data(site, "platform-cpu")["first"][0] == "install.cpu_s"


def indexed(site: Path) -> dict[str, dict[str, list[str]]]:
    """The states of each test by platform, the newest first, as the script reads the index."""
    found = data(site, "search")
    names = [""]
    for count, rest in zip(found["shared"].split(), found["names"].split("\n"), strict=True):
        names.append(names[-1][: int(count)] + rest)
    states = [*found["states"], "no test"]
    histories = [[states[int(it)] for it in one.split()] for one in found["histories"]]
    return {
        it["name"]: {
            name: histories[int(place)]
            for name, place in zip(names[1:], it["tests"].split(), strict=True)
            if int(place) >= 0
        }
        for it in found["platforms"]
    }


def test_the_index_has_the_outcomes_of_the_newest_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SHOWN_RUNS", 2)
    name = "t.py::test[a.out-float32-{}-slot8]"
    other = "t.py::test_other[é]"
    last = "t.py::test_other[éb]"
    for outcomes in (
        {name.format("cpu"): Outcome.FAILED, "t.py::test_removed": Outcome.PASSED},
        {name.format("cpu"): Outcome.FAILED, other: Outcome.PASSED},
        {name.format("cpu"): Outcome.PASSED, other: Outcome.SKIPPED, last: Outcome.PASSED},
    ):
        project.run(project.commit(), outcomes=outcomes)
    project.run(
        project.commit(), result(platform="nvidia"), outcomes={name.format("cuda"): Outcome.PASSED}
    )
    found = indexed(write(project)[1])
    shared = "t.py::test[a.out-float32-slot8]"
    assert found == {
        "cpu": {
            shared: ["passed", "failed"],
            other: ["skipped: no recorded reason", "passed"],
            last: ["passed", "no test"],
        },
        "nvidia": {shared: ["passed"]},
    }
    assert data(project.folder / "site", "search")["devices"] == ["cpu", "cuda"]


def test_names_of_several_lines_are_one_entry_each(project: Project) -> None:
    names = ("a\nb.py::test[a.out-float32-cpu-slot8]", "t.py::test_a\r\nb", "t.py::test_c")
    project.run(project.commit(), outcomes=dict.fromkeys(names, Outcome.PASSED))
    found = indexed(write(project)[1])
    assert [*found["cpu"]] == [
        "a b.py::test[a.out-float32-slot8]",
        "t.py::test_a b",
        "t.py::test_c",
    ]


def test_a_full_index_keeps_the_tests_that_failed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_TESTS", 2)
    outcomes = dict.fromkeys(("t.py::test_a", "t.py::test_b", "t.py::test_c"), Outcome.PASSED)
    project.run(project.commit(), outcomes={**outcomes, "t.py::test_d": Outcome.FAILED})
    _, site = write(project)
    assert [*indexed(site)["cpu"]] == ["t.py::test_a", "t.py::test_d"]
    page = (site / "search.html").read_text(encoding="utf-8")
    assert "2 more tests are left out" in page


def test_a_project_without_stored_tests_has_nothing_to_search(project: Project) -> None:
    project.run(project.commit(), outcomes={})
    page = (write(project)[1] / "search.html").read_text(encoding="utf-8")
    assert "No run along the branch has stored tests." in page


# Strangers' texts


def test_subjects_and_authors_are_text(project: Project) -> None:
    project.history([100.0])
    subject = "</script><i>\N{RIGHT-TO-LEFT OVERRIDE}hi https://me:secret@host/x"
    author = 'Eve" onfocus="x <x@y>'
    git(project.source, "commit", "--quiet", "--allow-empty", "-m", subject, "--author", author)
    project.run(project.main)
    site = write(project)[1]
    for path in site.rglob("*.*"):
        content = path.read_text(encoding="utf-8")
        bad = ("</script><i>", 'onfocus="', "\N{RIGHT-TO-LEFT OVERRIDE}", "secret")
        found = [it for it in bad if it in content]
        assert (path.name, found) == (path.name, [])
    assert "&lt;i&gt;" in (site / "index.html").read_text(encoding="utf-8")


def test_names_of_a_hostile_run_stay_in_the_folder(project: Project) -> None:
    name = "../../<b>x"
    odd = result().model_copy(update={"label": "</script><i>"})
    project.run(project.commit(), odd, run_id=name)
    code, site = write(project)
    assert code == ExitCode.PASSED
    assert [path.parent for path in project.folder.rglob("*.html")] == [site] * 7
    for path in site.rglob("*.*"):
        content = path.read_text(encoding="utf-8")
        assert "<b>x" not in content
        assert "</script><i>" not in content


def test_a_simulated_platform_has_the_label_of_its_results(project: Project) -> None:
    simulated = result().model_copy(update={"label": "CPU (simulated device)", "simulated": True})
    project.run(project.commit(), simulated)
    [platform] = data(write(project)[1], "runs")["platforms"]
    assert platform["label"] == "CPU (simulated device)"


def test_data_has_no_end_of_a_script() -> None:
    content = script("a", {"</script>": "\N{RIGHT-TO-LEFT OVERRIDE}x\x1b[31my\u2028"})
    assert content.isascii()
    assert "<" not in content
    [_, value] = json.loads(content.removeprefix("dashboard.data(...").removesuffix(");\n"))
    assert value == {"</script>": "\N{REPLACEMENT CHARACTER}xy "}


def test_credentials_in_texts_are_masked() -> None:
    assert clean(["see https://me:secret@host/x"]) == ["see https://***@host/x"]


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "a b", "", "é"])
def test_odd_names_have_a_digest_as_file_name(name: str) -> None:
    assert re.fullmatch(r"run-[0-9a-f]{16}", file_stem("run", name))
    assert file_stem("run", "2026-a.b_c") == "run-2026-a.b_c"


def test_a_spark_line_passes_over_missing_values() -> None:
    assert spark_path([]) == "Mh0"
    assert spark_path([None, 1.0, None]) == "M60.0,21.0h0"
    assert spark_path([0.0, None, 2.0]) == "M3.0,21.0L117.0,3.0h0"


# Damage


def test_a_damaged_result_is_left_out_and_named(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.history([100.0, 101.0, 102.0])
    with Store(default_url(project.results)) as store, store._engine.begin() as connection:
        connection.execute(
            text("UPDATE platforms SET document = '{\"platform\": 3' WHERE run_id = 'run-001'")
        )
    words = ["--output", str(project.folder / "site"), "--results", str(project.results)]
    assert cli.main(["dashboard", *words]) == ExitCode.PASSED
    assert "left out: the store" in capsys.readouterr().err
    found = data(project.folder / "site", "runs")
    assert found["id"] == ["run-000", "run-002"]
