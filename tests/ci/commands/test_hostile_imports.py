"""Nothing that is imported can hurt: it is refused by name, the rest goes on, the store stays good.

With `INFINI_CI_FUZZ=10000`, the tests of `-k fuzz` make 10,000 hostile folders; without it, a
sample of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from ci import cli
from ci.errors import ExitCode
from ci.facts.result_files import ResultFiles
from ci.model.results import RunResult
from ci.store import importing
from ci.store.folder import default_url
from ci.store.store import Store
from tests.cases import narrowed
from tests.ci.foreign_runs import RUN_ID, small, write_run
from tests.ci.hostile_runs import folders
from tests.ci.postgresql_server import connected
from tests.fuzz.documents import CONTROLS, nested

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
ROW = ("platforms", 0)
GOOD = "20260102T120000Z-0123abcd-0001"
OTHER = "20260103T120000Z-0123abcd-0002"
FOLDERS = 10  # of a fuzzed import
INPUTS = int(os.environ.get("INFINI_CI_FUZZ", "60"))  # 60 take 5 s


@pytest.fixture
def there(published: RunResult, tmp_path: Path) -> Path:
    """A folder with a run to be changed, and a good one behind it."""
    for run_id in (RUN_ID, GOOD):
        write_run(tmp_path / "there" / run_id, small(published, run_id))
    return tmp_path / "there"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    """The results folder; `gc` also looks into the temporary folder, which others fill."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    return tmp_path / "here"


def run_ci(here: Path, *words: object) -> int:
    return cli.main([*map(str, words), "--results", str(here)])


def change(folder: Path, changes: Callable[[Any], None]) -> None:
    path = folder / "results.json"
    document = json.loads(path.read_text())
    changes(document)
    path.write_text(json.dumps(document))


def put(*place: Any, value: object) -> Callable[[Any], None]:
    def changes(document: Any) -> None:
        for key in place[:-1]:
            document = document[key]
        document[place[-1]] = value

    return changes


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (put(*ROW, "environment", "x", value=float("inf")), "got Infinity, which is not JSON"),
        (put(*ROW, "total_s", value=float("nan")), "got NaN, which is not JSON"),
        (put(*ROW, "total_s", value=1e300), "platforms.0.total_s: Input should be less"),
        (put(*ROW, "stages", 0, "seconds", value=1e300), "platforms.0.stages.0.seconds: Input"),
        (put(*ROW, "pytest", "passed", value=10**30), "got an integer of more than 64 bits"),
        (put(*ROW, "environment", "x", value=nested(200)), "nested more than 100 deep"),
        (put("platforms", value=[]), "platforms: Tuple should have at least 1 item"),
        (put("started_at", value="0001-01-01T00:00:00+14:00"), "a time from 1970 to 9999"),
        (put("finished_at", value="9999-12-31T23:00:00-14:00"), "a time from 1970 to 9999"),
        (put("started_at", value="2026-01-01T00:00:00"), "started_at: got a time without a zone"),
        (put("project", value="p" * 65), "project: got 65 characters, expected at most 64"),
        (put("project", value=CONTROLS), "project: got '"),
        (put("engine", value="a\nerror: b"), "engine: got 'a\\nerror: b', expected printable"),
        (put("commit", value="\x9b2J"), "commit: got '\\x9b2J', expected printable"),
        (put(*ROW, "stages", 0, "name", value=CONTROLS), "platforms.0.stages.0.name: got '"),
        (put("lineage", "branch", value=CONTROLS), "lineage.branch: got '"),
        (put("lineage", "target", value="b" * 256), "lineage.target: got 256 characters"),
        (put("lineage", "ancestors", value=["--all"]), "lineage.ancestors.0: String should match"),
        (put("lineage", "ancestors", value=["a" * 40] * 201), "lineage.ancestors: Tuple should"),
        (put("lineage", "depth", value=-1), "lineage.depth: Input should be greater"),
        (put("lineage", "x", value=1), "lineage.x: Extra inputs are not permitted"),
        (put("schema_version", value=12), "got results of version 12, expected at most 11"),
        (lambda document: document.pop("schema_version"), "schema_version: got None, expected 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_later_is_refused_before_it_is_stored(
    there: Path, here: Path, capsys: Output, changes: Callable[[Any], None], fault: str
) -> None:
    change(there / RUN_ID, changes)
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr()
    assert f"{there / RUN_ID / 'results.json'}: expected a results file of version 11" in shown.err
    assert fault in shown.err
    assert f"{GOOD}: imported: nvidia passed, iluvatar incomplete\n" in shown.out
    assert "\x1b" not in shown.err + shown.out
    assert [it.name for it in here.glob("2026*")] == [GOOD]
    with Store(default_url(here)) as store:
        assert [head.run_id for head in store.heads()] == [GOOD]


def test_numbers_that_add_up_to_too_much_are_no_internal_error(
    there: Path, here: Path, capsys: Output
) -> None:
    """Each test is within the bound of a duration, their sum is not."""
    report = {"$report_type": "TestReport", "nodeid": "a", "when": "call", "outcome": "passed"}
    line = json.dumps({**report, "duration": 1e9})
    (there / RUN_ID / "nvidia" / "pytest.jsonl").write_text("\n".join([line] * 20_000))
    assert run_ci(here, "import", there) == ExitCode.PASSED
    assert "2 runs imported" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results.json", b"\xff\xfe{}"),
        ("results.json", b"[" * 1_000_000),
        ("results.json", b'{"platforms":' * 200_000),
    ],
)
def test_a_bad_folder_does_not_stop_the_next(
    there: Path, here: Path, capsys: Output, name: str, content: bytes
) -> None:
    (there / RUN_ID / name).write_bytes(content)
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr()
    assert f"error: {there / RUN_ID}" in shown.err
    assert f"{GOOD}: imported" in shown.out
    assert shown.out.endswith("1 run imported, 1 refused\n")


@pytest.mark.parametrize("name", ["pytest.jsonl", "events.jsonl", "pytest.rerun-1.jsonl"])
@pytest.mark.parametrize("line", [b"\xff\xff", b"[" * 1_000_000, b'{"a":' * 100_000])
def test_a_bad_line_of_a_log_is_skipped(there: Path, here: Path, name: str, line: bytes) -> None:
    with (there / RUN_ID / "nvidia" / name).open("ab") as file:
        file.write(b"\n" + line + b"\n")
    assert run_ci(here, "import", there) == ExitCode.PASSED
    with Store(default_url(here)) as store:
        assert len(store.tests(RUN_ID, "nvidia")) == 2


def test_a_folder_whose_name_is_not_utf_8_is_imported(
    there: Path, here: Path, capsys: Output
) -> None:
    odd = (there / RUN_ID).rename(os.fsdecode(os.fsencode(there) + b"/\xff\x1b[31m"))
    assert run_ci(here, "import", there) == ExitCode.PASSED
    (odd / "results.json").write_text("{")
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    assert "there/\N{REPLACEMENT CHARACTER}/results.json" in capsys.readouterr().err


def test_100_mb_of_json_are_refused_without_being_read(
    there: Path, here: Path, capsys: Output
) -> None:
    with (there / RUN_ID / "results.json").open("wb") as file:
        file.write(b"[" + b"[]," * 1_000)
        file.truncate(100_000_000)
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    assert "got 100,000,000 bytes, expected at most 33,554,432" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("bound", "fault"),
    [("LARGEST_RUN", "got more than 10 bytes"), ("MOST_FILES", "got more than 10 files")],
)
def test_a_folder_out_of_bounds_is_not_copied(
    there: Path, here: Path, capsys: Output, monkeypatch: Patch, bound: str, fault: str
) -> None:
    for number in range(10):
        (there / RUN_ID / str(number)).touch()
    monkeypatch.setattr(importing, bound, 10)
    assert run_ci(here, "import", there / RUN_ID) == ExitCode.USAGE
    assert fault in capsys.readouterr().err
    assert not list(here.glob("2026*"))


def test_a_deep_folder_is_refused_by_name(there: Path, here: Path, capsys: Output) -> None:
    deep = there / RUN_ID
    for _ in range(51):
        deep /= "d"
    deep.mkdir(parents=True)
    assert run_ci(here, "import", there) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert f"{there / RUN_ID}: got more than 50 nested folders" in shown.err
    assert f"{GOOD}: imported" in shown.out


def test_logs_out_of_bounds_are_not_read(
    there: Path, here: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(importing, "LARGEST_LOGS", 10)
    assert run_ci(here, "import", there / RUN_ID) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert "  nvidia: stored without its tests: their logs have " in shown
    with Store(default_url(here)) as store:
        assert store.tests(RUN_ID, "nvidia") == []


@pytest.mark.parametrize(
    "content",
    [
        '{"a": ' + "[" * 45 + "1," * 60_000 + "1" + "]" * 45 + "}",  # 6 MB with its indents
        json.dumps({"a": "x" * 300_000}),
    ],
)
def test_a_hostile_environment_does_not_make_results_unreadable(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "environment.json").write_text(content)
    assert ResultFiles(folder=tmp_path).environment == {}


def test_a_strangers_request_is_not_kept(there: Path, here: Path, capsys: Output) -> None:
    """``--resume`` would execute the commands of the configuration that it names."""
    (there / RUN_ID / "request.json").write_text('{"version": 1, "config": "/tmp/evil.yaml"}')
    assert run_ci(here, "import", there) == ExitCode.PASSED
    assert "evil" not in (here / RUN_ID / "request.json").read_text()
    assert run_ci(here, "run", "--resume", RUN_ID) == ExitCode.USAGE
    assert f"run {RUN_ID} was imported, expected a run that began here" in capsys.readouterr().err
    assert run_ci(here, "gc", "--engine", "host", "--dry-run", "--older-than", "0") == 0
    assert f"would remove results {RUN_ID}" in capsys.readouterr().out


@pytest.mark.parametrize("name", [".lock", "request.json"])
def test_a_folder_in_place_of_a_file_changes_nothing(
    there: Path, here: Path, capsys: Output, name: str
) -> None:
    (there / RUN_ID / name).mkdir()
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr()
    assert name in shown.err
    assert f"{GOOD}: imported" in shown.out
    with Store(default_url(here)) as store:
        assert [head.run_id for head in store.heads()] == [GOOD]


def test_a_run_that_cannot_be_stored_changes_nothing(
    there: Path, here: Path, monkeypatch: Patch, capsys: Output
) -> None:
    Store(default_url(here)).close()
    (here / "ci.db").rename(here / "kept.db")
    with connected(f"sqlite:///{here}/kept.db") as connection:
        connection.execute(text("CREATE TRIGGER full BEFORE INSERT ON measured BEGIN"
                                " SELECT RAISE(ABORT, 'no space'); END"))  # fmt: skip
    monkeypatch.setenv("INFINI_CI_DB", f"sqlite:///{here}/kept.db")
    assert run_ci(here, "import", there) == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr().err
    assert f"the store cannot save run {RUN_ID}: no space" in shown
    assert "Store them later: python -m ci import RESULTS" in shown
    assert not list(here.glob("2026*"))
    assert not (here / "latest").exists()


# A store that an earlier version let in what this one refuses


DAMAGES = {
    "infinity": "UPDATE platforms SET document ="
    " replace(CAST(document AS TEXT), '888.75', 'Infinity') WHERE run_id = :run",
    "too much": "UPDATE platforms SET document ="
    " CAST(replace(CAST(document AS TEXT), '888.75', '1e300') AS JSON) WHERE run_id = :run",
    "no platforms": "DELETE FROM platforms WHERE run_id = :run",
    "no object": "UPDATE runs SET document = CAST('[1]' AS JSON) WHERE run_id = :run",
    "measures": 'UPDATE measured SET measures = CAST(\'{"install.wall_s": "x"}\' AS JSON)'
    " WHERE platform_id IN (SELECT id FROM platforms WHERE run_id = :run)",
    "infinite measures": "UPDATE measured SET measures ="
    " CAST('{\"install.wall_s\": 1e999}' AS JSON)"
    " WHERE platform_id IN (SELECT id FROM platforms WHERE run_id = :run)",
    "part of an environment": "UPDATE environment_keys SET components ="
    ' CAST(\'{"platform": "cpu"}\' AS JSON) WHERE digest IN'
    " (SELECT environment_key FROM platforms WHERE run_id = :run)",
    "environment": "UPDATE environment_keys SET components = CAST('[]' AS JSON) WHERE digest IN"
    " (SELECT environment_key FROM platforms WHERE run_id = :run)",
}


def damage(url: str, run_id: str, kind: str) -> None:
    statement = DAMAGES[kind]
    if url.startswith("sqlite"):
        statement = statement.replace("AS JSON", "AS TEXT")
    with connected(url) as connection:
        assert connection.execute(text(statement), {"run": run_id}).rowcount


@pytest.mark.parametrize("kind", narrowed(DAMAGES, kept=5))
def test_a_damaged_run_is_named_and_the_others_go_on(
    published: RunResult,
    store_url: str,
    here: Path,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Output,
    kind: str,
) -> None:
    if kind == "infinity" and not store_url.startswith("sqlite"):
        pytest.skip("PostgreSQL checks JSON")
    monkeypatch.setenv("INFINI_CI_DB", store_url)
    good, other = small(published, GOOD), small(published, OTHER)
    # The damaged one is the newest.
    own = {"environment": {"machine": {"cores": 64}}}  # its rows are not shared
    platforms = tuple(it.model_copy(update=own) for it in small(published).platforms)
    newest = small(published, RUN_ID).model_copy(
        update={"started_at": published.finished_at, "platforms": platforms}
    )
    there = tmp_path / "there"
    for run in (good, other, newest):
        write_run(there / run.run_id, run)
    assert run_ci(here, "import", there) == ExitCode.PASSED
    damage(store_url, RUN_ID, kind)
    capsys.readouterr()

    def says(expected: ExitCode, *words: object) -> str:
        assert run_ci(here, *words) == expected
        shown = capsys.readouterr()
        if words[-1] != GOOD:
            assert f"cannot read run {RUN_ID}: " in shown.err
            assert "Remove it: python -m ci gc" in shown.err
        return shown.out

    only_measures = "measures" in kind or "environment" in kind
    if not only_measures:
        assert "infini-ops: commit" in says(ExitCode.PASSED, "report")
        says(ExitCode.INFRASTRUCTURE, "report", RUN_ID)
        assert f"{GOOD}/nvidia" in says(ExitCode.PASSED, "compare", "latest", GOOD)
        output = tmp_path / "out"
        said = says(ExitCode.INFRASTRUCTURE, "export", "--format", "csv", "--output", output)
        assert f"{output}/runs.csv: 2 rows of 2 runs\n" in said
        assert "platforms.csv: 4 rows of 2 runs" in said
        assert len((output / "runs.csv").read_text().splitlines()) == 3
    else:
        assert "nvidia, 2 runs" in says(ExitCode.PASSED, "history", "nvidia")
    assert f"would remove stored run {RUN_ID}" in _gc(here, capsys, "--dry-run")
    assert f"removed stored run {RUN_ID}" in _gc(here, capsys)
    assert "stored run" not in _gc(here, capsys)
    for words in (("report",), ("compare", OTHER, GOOD), ("history", "nvidia")):
        assert run_ci(here, *words) == ExitCode.PASSED
        assert capsys.readouterr().err == ""
    assert run_ci(here, "import", there) == ExitCode.PASSED  # repairs what gc removed
    with Store(store_url) as store:
        assert store.load(RUN_ID) == newest


def _gc(here: Path, capsys: Output, *options: str) -> str:
    assert run_ci(here, "gc", "--engine", "host", *options) == ExitCode.PASSED
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["too much", "no platforms", "no object"])
def test_importing_a_good_folder_again_repairs_its_rows(
    published: RunResult, store_url: str, here: Path, there: Path, kind: str,
    monkeypatch: Patch,
) -> None:  # fmt: skip
    monkeypatch.setenv("INFINI_CI_DB", store_url)
    assert run_ci(here, "import", there) == ExitCode.PASSED
    damage(store_url, RUN_ID, kind)
    assert run_ci(here, "import", there) == ExitCode.PASSED
    with Store(store_url) as store:
        assert store.load(RUN_ID) == small(published)


def test_every_text_of_a_run_is_shown_without_what_a_terminal_obeys(
    there: Path, here: Path, capsys: Output
) -> None:
    """What is no name may have any characters; it is escaped where it is printed."""

    def changes(document: Any) -> None:
        row = document["platforms"][0]
        row["label"] = row["findings"][0]["text"] = row["pytest"]["summary"] = CONTROLS
        row["verdict"]["evidence"] = [{"grade": "fact", "text": CONTROLS}]
        row["environment"] = {"compiler": CONTROLS, "options": {CONTROLS: CONTROLS}}
        row["artifacts"] = {CONTROLS: CONTROLS}

    change(there / RUN_ID, changes)
    log = (there / RUN_ID / "nvidia" / "pytest.jsonl").read_text()
    escaped = json.dumps(f"[add.out{CONTROLS}-")[1:-1]
    (there / RUN_ID / "nvidia" / "pytest.jsonl").write_text(log.replace("[add.out-", escaped))
    commands = [
        ("import", there),
        *(("report", RUN_ID, "--format", form) for form in ("table", "markdown", "json")),
        ("report", RUN_ID, "--slowest"),
        *(("compare", GOOD, RUN_ID, "--format", form) for form in ("table", "markdown", "json")),
        *(("history", "nvidia", "--format", form) for form in ("table", "markdown", "json")),
        ("flaky", "nvidia"),
    ]
    for words in commands:
        assert run_ci(here, *words) == ExitCode.PASSED
        shown = capsys.readouterr()
        assert all(it.isprintable() for it in (shown.out + shown.err).replace("\n", "")), words


@pytest.mark.parametrize("words", [["report"], ["import", "{}"], ["run", "--resume", "x"]])
def test_an_error_is_shown_without_what_a_terminal_obeys(
    tmp_path: Path, capsys: Output, words: list[str]
) -> None:
    folder = tmp_path / CONTROLS
    folder.mkdir()
    assert run_ci(folder, *(word.format(folder) for word in words)) == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert shown.startswith("error: ")
    assert all(it.isprintable() for it in shown.replace("\n", ""))


# 10,000 folders


def _fuzz(run: RunResult, makes: list[Callable[[Path], Path]]) -> None:
    """Import hostile folders and a good one, then show what was let in."""
    with TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        root = Path(name)
        here, there, outside = root / "here", root / "there", root / "outside"
        outside.mkdir()
        for number, make in enumerate(makes):
            make(there / f"{number:03}" / f"2026010{number % 9 + 1}T000000Z-nogit-{number:04x}")
        write_run(there / "last" / GOOD, small(run, GOOD))
        before = {path: path.lstat().st_mtime_ns for path in there.rglob("*")}
        out, err = io.StringIO(), io.StringIO()
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        assert run_ci(here, "import", there) in (0, 2, 3)
        assert f"{GOOD}: imported: nvidia passed, iluvatar incomplete\n" in out.getvalue()
        with Store(default_url(here)) as store:
            run_ids = [head.run_id for head in store.heads()]
            assert set(run_ids) == {path.name for path in here.glob("2026*")}
        commands: tuple[Sequence[str | Path], ...] = (
            ["report"],
            *(["report", run_id, "--format", "markdown"] for run_id in run_ids),
            *(["compare", run_id, GOOD] for run_id in run_ids[:2]),
            ["history", "nvidia"],
            ["export", "--format", "csv", "--output", root / "out"],
            ["import", there],
        )
        for words in commands:
            code = run_ci(here, *words)
            # What is stored can be shown: exit code 2 is for a run without the platform.
            assert code == 0 or words[0] in ("import", "compare"), words
            assert code in (0, 2, 3), words
        shown = (out.getvalue() + err.getvalue()).replace("\n", "")
        assert all(it.isprintable() for it in shown)
        after = {path: path.lstat().st_mtime_ns for path in there.rglob("*")}
        assert after == before
        assert {it.name for it in root.iterdir()} <= {"here", "there", "outside", "out"}
        assert not list(outside.iterdir())


def test_fuzzed_folders(published: RunResult) -> None:
    run = small(published)

    @settings(
        max_examples=max(INPUTS // FOLDERS, 1),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.lists(folders(run), min_size=FOLDERS, max_size=FOLDERS))
    def fuzz(makes: list[Callable[[Path], Path]]) -> None:
        _fuzz(run, makes)

    fuzz()
