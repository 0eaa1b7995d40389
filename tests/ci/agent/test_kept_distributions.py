"""The wheels and source distributions of a run: kept, named in commands, tested alone."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ci.agent.machine import tool_facts
from ci.facts.distributions import read_distributions
from ci.facts.notes import source_notes
from ci.model.plan import GivenDistribution
from ci.protocol.job import DistributionJob
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job, stage_plan

WHEEL = "tiny-1-py3-none-any.whl"
SDIST = "tiny-1.tar.gz"
MAKE = f"""
import os, pathlib
folder = pathlib.Path("out/dist")
folder.mkdir(parents=True)
(folder / "{WHEEL}").write_text("wheel")
"""
DAMAGE = f"import pathlib; pathlib.Path('out/dist/{WHEEL}').write_text('another')"


@pytest.fixture
def job(job: Job) -> Job:
    job.distributions = DistributionJob("out/dist")
    return job


def kept(job: Job) -> dict[str, str]:
    return {it.name: it.read_text() for it in (job.results / "dist").iterdir()}


def test_a_wheel_is_kept_as_it_was_before_the_tests(job: Job) -> None:
    job.python("wheel", MAKE)
    job.python("pytest", DAMAGE, kind=StageKind.PYTEST)
    assert job.run() == 0
    assert kept(job) == {WHEEL: "wheel"}


def test_without_tests_it_is_kept_at_the_end(job: Job) -> None:
    job.python("wheel", MAKE)
    assert job.run() == 0
    assert kept(job) == {WHEEL: "wheel"}


def test_only_regular_files_with_a_valid_name_are_kept(job: Job) -> None:
    (job.workspace / "secret").write_text("secret")
    job.python(
        "wheel",
        MAKE
        + """
os.symlink("../../secret", folder / "link-1-py3-none-any.whl")
os.mkfifo(folder / "pipe-1-py3-none-any.whl")
(folder / "folder-1-py3-none-any.whl").mkdir()
(folder / "notes.txt").touch()
(folder / "a b.whl").touch()
(folder / ".whl").touch()
os.truncate(os.open(folder / "huge-1.tar.gz", os.O_CREAT | os.O_WRONLY), 1 << 40)
(folder / "tiny-1.tar.gz").write_text("sources")
""",
    )
    assert job.run() == 0
    assert kept(job) == {WHEEL: "wheel", SDIST: "sources"}
    [cut] = job.events("artifact_cut")
    assert (cut["name"], cut["path"], cut["left_out"]) == ("dist", "out/dist", 7)


def test_more_files_than_a_result_can_have(job: Job) -> None:
    job.python("wheel", MAKE + "for n in range(2000): (folder / f'a-{n}.zip').touch()")
    assert job.run() == 0
    assert 40 < len(kept(job)) <= 100
    assert job.events("artifact_cut")[0]["left_out"] > 900


def test_a_link_in_the_results_is_replaced(job: Job, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    job.python("wheel", MAKE + f"os.symlink({str(elsewhere)!r}, {str(job.results / 'dist')!r})")
    assert job.run() == 0
    assert not (job.results / "dist").is_symlink()
    assert kept(job) == {WHEEL: "wheel"}
    assert [*elsewhere.iterdir()] == []


def test_older_files_are_not_of_this_run(job: Job) -> None:
    old = job.workspace / "out" / "dist"
    old.mkdir(parents=True)
    (old / "old-1-py3-none-any.whl").touch()
    job.stage("wheel", "true")
    assert job.run() == 0
    [missing] = job.events("artifact_missing")
    assert (missing["name"], missing["path"]) == ("dist", "out/dist/*.whl")
    assert not (job.results / "dist").exists()


def test_commands_get_the_wheel(job: Job) -> None:
    job.python("wheel", MAKE + "(folder / 'a-1-py3-none-any.whl').touch()")
    job.stage("install", "echo", "{wheel}[dev]", "--plain")
    assert job.run() == 0
    both = f"out/dist/a-1-py3-none-any.whl[dev] out/dist/{WHEEL}[dev] --plain\n"
    assert job.log("install") == both
    assert job.events("stage_started")[1]["command"] == ["echo", *both.split()]


def test_a_command_without_a_wheel_names_where_it_should_be(job: Job) -> None:
    job.stage("install", "echo", "{wheel}[dev]")
    job.run()
    assert job.log("install") == "out/dist/*[dev]\n"


def test_a_job_without_distributions_has_words_as_they_are(job: Job) -> None:
    job.distributions = None
    job.stage("install", "echo", "{wheel}")
    job.run()
    assert job.log("install") == "{wheel}\n"


# Made elsewhere


@pytest.fixture
def given(job: Job, tmp_path: Path) -> Path:
    path = tmp_path / "given" / WHEEL
    path.parent.mkdir()
    members = ("tiny/__init__.py", "tiny/data.json", "tiny/tests/test_a.py", "alone.py")
    data = "tiny-1.data/purelib/more/part.py"
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*members, data, "../out.py", "/abs.py", "tiny-1.dist-info/RECORD"):
            archive.writestr(name, "")
    job.distributions = DistributionJob("out/dist", (str(path),))
    return path


def test_sources_lose_what_a_given_wheel_has(job: Job, given: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for folder in (job.workspace / "src" / "tiny", job.workspace / "more", outside):
        folder.mkdir(parents=True)
    gone = ("src/tiny/__init__.py", "more/part.py", "alone.py")
    (job.workspace / "src" / "tiny" / "tests").mkdir()
    stays = ("src/tiny/own.py", "src/tiny/data.json", "src/tiny/tests/test_a.py", "../out.py")
    for name in (*gone, *stays):
        (job.workspace / name).touch()
    (outside / "__init__.py").touch()
    (job.workspace / "tiny").symlink_to(outside)
    job.stage("install", "echo", "{wheel}")
    assert job.run() == 0
    assert job.log("install") == f"{given}\n"
    assert [name for name in gone if (job.workspace / name).exists()] == []
    assert [name for name in stays if not (job.workspace / name).exists()] == []
    assert (outside / "__init__.py").exists()
    assert [it["files"] for it in job.events("sources_removed")] == [len(gone)]
    assert [*(job.results / "dist").iterdir()] == [job.results / "dist" / WHEEL]


def test_a_given_file_that_is_no_wheel_removes_nothing(job: Job, given: Path) -> None:
    given.write_text("not a zip file")
    (job.workspace / "alone.py").touch()
    job.stage("install", "true", "{wheel}")
    assert job.run() == 0
    assert (job.workspace / "alone.py").exists()


def test_a_given_source_distribution_becomes_a_wheel(job: Job, tmp_path: Path) -> None:
    sdist = tmp_path / SDIST
    sdist.write_text("sources")
    job.distributions = DistributionJob("out/dist", (str(sdist),))
    job.artifacts = {"generated": "build/generated"}  # of a stage that does not run
    job.python("wheel", MAKE + "import sys; print(*sys.argv[1:])")
    job.stage("show", "echo", "{sdist}", "{wheel}")
    assert job.run() == 0
    assert job.log("show") == f"{sdist} out/dist/{WHEEL}\n"
    assert kept(job) == {WHEEL: "wheel", SDIST: "sources"}
    assert job.events("artifact_missing") == []


# Proof of what was installed

INFO = "tiny-1.dist-info"
MODULE = "tiny/__init__.py"
METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n"
FILES = {MODULE: "ANSWER = 42\n", f"{INFO}/METADATA": METADATA}


def record_of(files: Mapping[str, str]) -> str:
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
        lines.append(f"{name},sha256={digest.rstrip('=')},{len(text)}\n")
    return "".join([*lines, f"{INFO}/RECORD,,\n"])


COMPLETE = record_of(FILES)


def write_wheel(site: Path, files: Mapping[str, str] = FILES, record: str = COMPLETE) -> str:
    """A wheel in the results; returns its SHA-256."""
    path = site.parent / "results" / "dist" / WHEEL
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{INFO}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Packages as pip installs them from a wheel, in a folder beside that of a project."""
    (tmp_path / "project" / "tiny").mkdir(parents=True)
    site = tmp_path / "site"
    for name, text in {**FILES, f"{INFO}/RECORD": COMPLETE}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    write_origin(site, {"hashes": {"sha256": write_wheel(site)}})
    return site


def content_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_origin(site: Path, archive_info: object) -> None:
    origin = {"url": f"file:///work/dist/{WHEEL}", "archive_info": archive_info}
    (site / INFO / "direct_url.json").write_text(json.dumps(origin))


def recorded(site: Path) -> dict[str, object]:
    variables = {**os.environ, "PYTHONPATH": str(site)}
    return tool_facts(variables, site.parent / "project")


def is_installed(site: Path) -> bool:
    """Whether the wheel in the results counts as what the tests ran with."""
    environment = json.loads(json.dumps(recorded(site)))
    [found] = read_distributions(site.parent / "results", environment, None)
    assert found.path == f"results/dist/{WHEEL}"
    return found.installed


def test_an_installed_wheel_is_proven_by_its_hash(site: Path) -> None:
    assert is_installed(site)


@pytest.mark.parametrize(
    ("archive_info", "proven"),
    [
        ({"hash": "sha256=DIGEST"}, True),  # pip before 23.1
        ({"hashes": {"sha256": content_digest("another")}}, False),
        ({}, True),  # that of Debian 12, 23.0.1: the hashes of the files alone prove it
        ({"hashes": {"sha256": 3}}, False),
        ({"hashes": 3}, False),
        ([], False),
    ],
)
def test_what_an_installer_recorded(site: Path, archive_info: object, *, proven: bool) -> None:
    digest = write_wheel(site)
    write_origin(site, json.loads(json.dumps(archive_info).replace("DIGEST", digest)))
    assert is_installed(site) is proven


def test_files_with_other_hashes_are_of_another_wheel(site: Path) -> None:
    write_origin(site, {})
    write_wheel(site, record=COMPLETE.replace("sha256=", "sha256=0"))
    assert not is_installed(site)


def test_an_altered_installation_is_not_the_wheel(site: Path) -> None:
    (site / MODULE).write_text("ANSWER = 43\n")
    assert not is_installed(site)
    (site / MODULE).unlink()
    assert not is_installed(site)


def cut(record: str) -> str:
    return "".join(record.splitlines(keepends=True)[1:])


def without_hash(record: str) -> str:
    return "\n".join([f"{MODULE},,", *record.splitlines()[1:]]) + "\n"


@pytest.mark.parametrize("of", ["wheel", "installation", "both"])
@pytest.mark.parametrize("change", [lambda _: "", cut, without_hash], ids=["empty", "cut", "bare"])
def test_what_record_does_not_list_with_a_hash_is_not_proven(
    site: Path, change: Callable[[str], str], of: str
) -> None:
    """Nothing would notice that the module is another one."""
    if of != "installation":
        digest = write_wheel(site, record=change(COMPLETE))
        write_origin(site, {"hashes": {"sha256": digest}})
    if of != "wheel":
        (site / INFO / "RECORD").write_text(change(COMPLETE))
    (site / MODULE).write_text("ANSWER = 43\n" if of != "wheel" else "ANSWER = 42\n")
    assert not is_installed(site)


def test_what_installers_and_python_add_needs_no_hash(site: Path) -> None:
    added = "tiny/__pycache__/__init__.cpython-311.pyc"
    (site / "tiny" / "__pycache__").mkdir()
    (site / added).touch()
    (site / INFO / "RECORD").write_text(f"{COMPLETE}{added},,\n{INFO}/RECORD.jws,,\n")
    assert is_installed(site)


def test_files_that_are_installed_elsewhere(site: Path) -> None:
    """Modules of ``purelib`` go beside the other packages; data goes where the digest ends."""
    data = {"tiny-1.data/purelib/more.py": "MORE = 1\n", "tiny-1.data/data/share/a": "data"}
    digest = write_wheel(site, {**FILES, **data}, record_of({**FILES, **data}))
    write_origin(site, {"hashes": {"sha256": digest}})
    installed = {**FILES, "more.py": "MORE = 1\n", "../share/a": "data"}
    for name in ("more.py", "../share/a"):
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(installed[name])
    (site / INFO / "RECORD").write_text(record_of(installed))
    assert is_installed(site)
    (site / "more.py").write_text("MORE = 2\n")
    assert not is_installed(site)


@pytest.mark.parametrize("forged", [None, 3, [3], [{}], [{"sha256": 3}], [{"sha256": []}]])
def test_a_forged_record_proves_nothing(tmp_path: Path, forged: object) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / WHEEL).touch()
    (tmp_path / "dist" / "no-distribution.txt").touch()
    (tmp_path / "dist" / "link-1.zip").symlink_to(WHEEL)
    environment = json.loads(json.dumps({"installed_files": forged}))
    [found] = read_distributions(tmp_path, environment, None)
    assert (found.name, found.installed, found.given) == (WHEEL, False, False)


def test_a_given_file_is_known_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / WHEEL).write_text("wheel")
    for text, given in (("wheel", True), ("another", False)):
        file = GivenDistribution(path=Path(WHEEL), sha256=content_digest(text), size_bytes=5)
        [found] = read_distributions(tmp_path, {}, file)
        assert found.given is given


def test_tests_that_import_the_sources_are_reported(site: Path) -> None:
    stage = stage_plan("pytest", "python", "-m", "pytest")
    assert source_notes(recorded(site), stage) == []
    (site.parent / "project" / "tiny" / "__init__.py").touch()
    [note] = source_notes(recorded(site), stage)
    assert note.text == "the tests import tiny from the sources, not from the installed wheel"
    assert source_notes(recorded(site), stage_plan("pytest", "pytest")) == []
