"""Runs of elsewhere: taken over as a whole, once, and nothing that they could smuggle in."""

from __future__ import annotations

import difflib
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from filelock import FileLock

from ci import cli
from ci.errors import ExitCode, UsageError
from ci.facts.result_files import ResultFiles
from ci.model.results import RunResult
from ci.store.folder import RESULTS_FILE, default_url, read_results
from ci.store.importing import Importer, ImportOutcome, compare_with_known, find_run_folders
from ci.store.store import Store
from tests.ci.foreign_runs import RUN_ID, resumed, small, write_run
from tests.ci.operator_log import node_id

Output = pytest.CaptureFixture[str]


@pytest.fixture
def run(published: RunResult) -> RunResult:
    return small(published)


@pytest.fixture
def there(run: RunResult, tmp_path: Path) -> Path:
    return write_run(tmp_path / "there" / run.run_id, run)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def imported(here: Path, *folders: Path, options: tuple[str, ...] = ()) -> int:
    return cli.main(["import", *map(str, folders), "--results", str(here), *options])


def snapshot(folder: Path) -> dict[str, tuple[float, int]]:
    """Every file but those of the database, which reading changes."""
    files = (path for path in folder.rglob("*") if path.is_file() and "ci.db" not in path.name)
    return {str(path): (path.stat().st_mtime, path.stat().st_ino) for path in files}


def test_a_run_is_copied_and_stored_with_its_tests(
    run: RunResult, there: Path, here: Path, capsys: Output
) -> None:
    assert imported(here, there) == ExitCode.PASSED
    assert capsys.readouterr().out == f"{RUN_ID}: imported: nvidia passed, iluvatar incomplete\n"
    assert (here / RUN_ID / "iluvatar" / "install.log").read_text() == "built\n"
    assert (here / "latest").readlink() == Path(RUN_ID)
    with Store(default_url(here)) as store:
        assert store.load(RUN_ID) == run
        tests = store.tests(RUN_ID, "nvidia")
    assert [(test.node_id, test.skip_reason) for test in tests] == [
        (node_id("abs.out"), "no sample"),
        (node_id("add.out"), None),
    ]


def test_a_new_run_is_not_searched_among_the_others(
    there: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search for a similar name takes 0.3 s among 5,000 runs."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no message needs a similar name")

    imported(here, there)
    monkeypatch.setattr(difflib, "get_close_matches", refuse)
    run = read_results(there / RESULTS_FILE)
    other = run.model_copy(update={"run_id": f"{RUN_ID[:-4]}00fe"})
    assert imported(here, write_run(there.parent / other.run_id, other)) == ExitCode.PASSED


def test_what_was_imported_as_json(
    run: RunResult, there: Path, here: Path, capsys: Output, tmp_path: Path
) -> None:
    options = ("--format=json",)
    assert imported(here, there, tmp_path / "nowhere", options=options) == ExitCode.USAGE
    shown = capsys.readouterr()
    printed = json.loads(shown.out)
    assert [(it["run_id"], it["change"]) for it in printed["runs"]] == [(run.run_id, "imported")]
    assert printed["refused"] == 1
    assert "nowhere" in shown.err


def test_importing_again_changes_nothing(there: Path, here: Path, capsys: Output) -> None:
    imported(here, there)
    before = snapshot(here)
    assert imported(here, there, there.parent) == ExitCode.PASSED
    assert snapshot(here) == before
    assert capsys.readouterr().out.endswith("2 runs already here\n")


def test_a_run_that_was_resumed_elsewhere_is_updated_and_never_set_back(
    run: RunResult, published: RunResult, there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    later = resumed(run, published.platforms[1])
    folder = write_run(tmp_path / "later", later)
    imported(here, there)
    assert imported(here, folder) == ExitCode.PASSED
    assert imported(here, there) == ExitCode.PASSED
    said = [line.partition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said == [
        "imported: nvidia passed, iluvatar incomplete",
        "updated: nvidia passed, iluvatar passed",
        "already here, and has got further since: nvidia passed, iluvatar incomplete",
    ]
    assert read_results(here / RUN_ID / "results.json") == later
    assert [path.name for path in (here / ".import").iterdir()] == [".lock"]
    with Store(default_url(here)) as store:
        assert store.load(RUN_ID) == later
        assert [len(store.tests(RUN_ID, name)) for name in ("nvidia", "iluvatar")] == [2, 2]


def test_other_results_of_a_known_run_are_refused_unless_they_are_to_win(
    run: RunResult, there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    other = run.platforms[0].model_copy(update={"built": False, "pytest": None})
    changed = run.model_copy(update={"platforms": (other, run.platforms[1])})
    folder = write_run(tmp_path / "other", changed)
    imported(here, there)
    assert imported(here, folder) == ExitCode.USAGE
    summary = run.platforms[0].pytest and run.platforms[0].pytest.summary
    assert capsys.readouterr().err == (
        f"error: run {RUN_ID} is already here with other results:"
        f" nvidia passed ({summary}) here, passed (without a pytest summary) there\n"
        "The run here is not changed. To replace it with the one you name, add --replace.\n"
    )
    assert read_results(here / RUN_ID / "results.json") == run
    assert imported(here, folder, options=("--replace",)) == ExitCode.PASSED
    with Store(default_url(here)) as store:
        assert store.load(RUN_ID) == changed == read_results(here / RUN_ID / "results.json")


def test_only_the_progress_may_differ_between_copies_of_a_run(run: RunResult) -> None:
    for field, value in {"commit": "ff" * 20, "project": "x", "dirty": True}.items():
        other = run.model_copy(update={field: value})
        with pytest.raises(UsageError, match=f"other results: {field} is .* here, {value} there"):
            compare_with_known(run, other)
    assert compare_with_known(None, run) is ImportOutcome.NEW


def test_latest_stays_the_run_that_began_last(
    run: RunResult, there: Path, here: Path, tmp_path: Path
) -> None:
    imported(here, there)
    for year, latest in ((2025, run.run_id), (2027, "20270101T120000Z-nogit-0000")):
        started = run.started_at.replace(year=year)
        other = run.model_copy(
            update={"run_id": f"{year}0101T120000Z-nogit-0000", "started_at": started}
        )
        imported(here, write_run(tmp_path / str(year), other))
        assert (here / "latest").readlink() == Path(latest)


def test_results_of_the_first_version_are_read(run: RunResult, there: Path, here: Path) -> None:
    document = json.loads((there / "results.json").read_text())
    document["schema_version"] = 1
    for platform in document["platforms"]:
        for newer in ("overloads", "simulated", "build"):
            del platform[newer]
    (there / "results.json").write_text(json.dumps(document))
    for _ in range(2):
        assert imported(here, there) == ExitCode.PASSED
    with Store(default_url(here)) as store:
        assert store.load(RUN_ID) == run


def test_one_bad_folder_stops_no_other(
    there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "archive.zip").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "results.json").write_text('{"run_id": ')
    (tmp_path / "several" / RUN_ID / "cpu").mkdir(parents=True)
    bad = [tmp_path / name for name in ("archive.zip", "empty", "half", "nowhere", "several")]
    assert imported(here, *bad, there) == ExitCode.INFRASTRUCTURE
    printed = capsys.readouterr()
    for part in (
        "archive.zip: not a folder\nName a folder. Unpack an archive first.",
        "empty: got no results.json in it or below, expected the results of a run\nName a folder",
        "half/results.json: expected a results file of version",
        "nowhere: no such folder",
        f"{RUN_ID}: got no results.json, which every run writes at its start\nCopy",
    ):
        assert part in printed.err
    assert printed.out.endswith("1 run imported, 5 refused\n")
    assert imported(here, tmp_path / "empty") == ExitCode.USAGE


@pytest.mark.parametrize("name", ["../../x", "latest", "ci.db", ".import", "", "a/b"])
def test_a_run_id_that_is_no_run_id_becomes_no_path(
    run: RunResult, here: Path, tmp_path: Path, name: str, capsys: Output
) -> None:
    folder = write_run(tmp_path / "there", run.model_copy(update={"run_id": name}))
    assert imported(here, folder) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert f"run_id: got {name!r}, expected a run id such as" in error
    assert "00ff\nCopy the folder again from the machine" in error
    assert sorted(path.name for path in here.iterdir() if "ci.db" not in path.name) == [".import"]


def test_nor_does_the_name_of_a_platform(
    run: RunResult, here: Path, tmp_path: Path, capsys: Output
) -> None:
    path = run.platforms[0].model_copy(update={"platform": "../cpu"})
    twice = run.model_copy(update={"platforms": (path, *run.platforms[1:] * 2)})
    folder = write_run(tmp_path / "there", run)
    (folder / "results.json").write_text(twice.to_json())
    assert imported(here, folder) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "platforms: got '../cpu', expected only cpu, nvidia" in error
    assert "platforms: got iluvatar 2 times, expected it once\nCopy the folder again from" in error
    with Store(default_url(here)) as store:
        assert store.heads() == []


def test_links_and_special_files_stay_where_they_are(
    there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "secret").write_text("of this machine")
    (there / "nvidia" / "pytest.log").symlink_to(tmp_path / "secret")
    (there / "metax").symlink_to(tmp_path)
    os.mkfifo(there / "pipe")
    (there.parent / "other").symlink_to(there)
    assert find_run_folders(there.parent) == [there]
    assert imported(here, there) == ExitCode.PASSED
    assert "  left out: 3 links or special files\n" in capsys.readouterr().out
    copied = {str(path.relative_to(here / RUN_ID)) for path in (here / RUN_ID).rglob("*")}
    assert {"results.json", "nvidia/install.log"} < copied
    assert not {"nvidia/pytest.log", "metax", "pipe"} & copied
    (there / "results.json").rename(tmp_path / "results.json")
    (there / "results.json").symlink_to(tmp_path / "results.json")
    assert imported(here, there) == ExitCode.USAGE


@pytest.mark.parametrize("lock", [".lock", "nvidia/host.lock"])
def test_a_run_that_goes_on_is_refused(there: Path, here: Path, lock: str, capsys: Output) -> None:
    with FileLock(there / lock):
        assert imported(here, there) == ExitCode.USAGE
    assert f"{there}: its run is still running\n" in capsys.readouterr().err
    assert imported(here, there) == ExitCode.PASSED
    assert not list((here / RUN_ID).rglob("host.lock"))


def test_a_run_that_is_resumed_here_meanwhile_is_left_alone(
    run: RunResult, published: RunResult, there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    imported(here, there)
    later = write_run(tmp_path / "later", resumed(run, published.platforms[1]))
    with FileLock(here / RUN_ID / ".lock"):
        assert imported(here, later) == ExitCode.USAGE
    assert f"run {RUN_ID} is still running" in capsys.readouterr().err
    assert read_results(here / RUN_ID / "results.json") == run


def test_an_interrupted_import_is_repaired(
    run: RunResult, there: Path, here: Path, capsys: Output
) -> None:
    """Between any two of its steps: copying, renaming, storing."""
    half = here / ".import" / RUN_ID
    half.mkdir(parents=True)
    (half / "results.json").write_text("{")
    aside = write_run(here / ".import" / f"{RUN_ID}-aside", run)
    assert imported(here, there) == ExitCode.PASSED
    assert not aside.exists()
    assert not half.exists()
    assert "already here" in capsys.readouterr().out
    with Store(default_url(here)) as store:  # which had nothing
        assert store.load(RUN_ID) == run
        assert len(store.tests(RUN_ID, "nvidia")) == 2


def test_the_store_is_rebuilt_from_the_folders(run: RunResult, there: Path, here: Path) -> None:
    imported(here, there)
    (here / "ci.db").unlink()
    assert imported(here, here) == ExitCode.PASSED
    with Store(default_url(here)) as store:
        assert store.load() == run


def test_of_a_run_whose_folder_is_gone_the_store_knows_enough(
    there: Path, here: Path, capsys: Output
) -> None:
    imported(here, there)
    shutil.rmtree(here / RUN_ID)
    assert imported(here, there) == ExitCode.PASSED
    assert f"{RUN_ID}: already here" in capsys.readouterr().out
    assert ResultFiles(folder=here / RUN_ID / "nvidia").log is not None


def test_the_page_of_a_run_is_made_here(there: Path, here: Path) -> None:
    (there / "results.md").write_text("[all passed](https://elsewhere.example)\n")
    assert imported(here, there) == ExitCode.PASSED
    page = (here / there.name / "results.md").read_text(encoding="utf-8")
    assert "elsewhere" not in page
    assert "| Platform |" in page


def test_a_missing_log_is_reported(there: Path, here: Path, capsys: Output) -> None:
    (there / "nvidia" / "pytest.jsonl").unlink()
    assert imported(here, there) == ExitCode.PASSED
    assert "  nvidia: stored without its tests: their log is missing\n" in capsys.readouterr().out


def test_two_imports_do_not_mix(here: Path) -> None:
    here.mkdir()
    with (
        Store(default_url(here)) as store,
        Importer(results=here, store=store, render=lambda run: run.run_id),
        pytest.raises(UsageError, match=r"another import into .*here is running"),
        Importer(results=here, store=store, render=lambda run: run.run_id),
    ):
        pass


def pack_runs(path: Path, there: Path, *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        archive.add(there, f"report-nvidia/results/{there.name}")
        for entry in more:
            archive.addfile(entry)
    return path


def test_the_report_of_a_kit(
    run: RunResult, there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    report = pack_runs(tmp_path / "report.tar.gz", there)
    assert imported(here, report) == ExitCode.PASSED
    assert capsys.readouterr().out == f"{RUN_ID}: imported: nvidia passed, iluvatar incomplete\n"
    with Store(default_url(here)) as store:
        assert store.load(RUN_ID) == run
    assert imported(here, there) == ExitCode.PASSED  # the folder is the same run
    assert "already here" in capsys.readouterr().out


def test_a_damaged_report_is_refused(
    there: Path, here: Path, tmp_path: Path, capsys: Output
) -> None:
    report = pack_runs(tmp_path / "report.tar.gz", there)
    content = report.read_bytes()
    link = tarfile.TarInfo("report-nvidia/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    climbing = tarfile.TarInfo("../outside")
    for name, expected in {
        "cut": "damaged or unsafe archive: Compressed file ended",
        "text": "damaged or unsafe archive: Not a gzipped file",
        "link": "damaged or unsafe archive: 1 link: report-nvidia/link",
        "climbing": "damaged or unsafe archive: 1 unsafe name: ../outside",
        "none": "cannot be read: No such file or directory",
    }.items():
        path = tmp_path / f"{name}.tgz"
        if name in ("cut", "text"):
            path.write_bytes(content[: len(content) // 2] if name == "cut" else b"hello")
        elif name != "none":
            pack_runs(path, there, link if name == "link" else climbing)
        assert imported(here, path) == ExitCode.USAGE
        assert f"error: {path}: " in (printed := capsys.readouterr().err)
        assert expected in printed, name
        assert not (here / RUN_ID).exists()
    assert not (tmp_path / "outside").exists()
