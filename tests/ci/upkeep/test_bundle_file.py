"""Bundles without an engine: their content, refusals, and runs with them."""

from __future__ import annotations

import io
import shlex
import subprocess
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import yaml

from ci import cli
from ci.commands import run as run_command
from ci.errors import ConfigError, ExitCode, UsageError
from ci.facts.sentences import on_rows
from ci.model.plan import CONTAINER_WHEELS
from ci.model.results import Lineage
from ci.plan import bundle as names
from ci.plan import git_history, source
from ci.plan.bundle import VERSION, BundledImage, BundleDocument
from ci.plan.config import NetworkConfig
from ci.plan.planning import RunOptions
from ci.plan.project import Project, load_project
from ci.plan.request import RunRequest, new_request, source_changes
from ci.protocol.job import Column
from ci.run import session
from ci.store.folder import read_results
from ci.upkeep.bundle.file import new_bundle, open_archive
from ci.upkeep.bundle.pack import find_configuration, site_settings
from ci.upkeep.bundle.unpack import open_bundle
from ci.upkeep.bundle.wheels import pip_arguments
from ci.util.text import commit_name
from tests.ci.agent_job import stage_plan
from tests.ci.local_engine import LocalEngine

CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest, kind: pytest}
"""
CONTAINS_BOTH = "--bundle: cannot be combined with --source or --config: a bundle contains both"
COMMIT = "0123abcd" * 5
IMAGE = BundledImage(
    member="images/cpu.tar.gz", tag="infini-ci/cpu:0", id="sha256:1", layers=("sha256:2",), size=3
)


@pytest.fixture(autouse=True)
def _no_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "INFINI_CI_SITE", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _local_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run_command, session):
        monkeypatch.setattr(module, "select_engine", lambda _: LocalEngine())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "ci.yaml").write_text(CONFIG)
    (folder / "test_a.py").write_text("def test_a(): pass\n")
    return folder


@pytest.fixture
def bundle(project: Path, tmp_path: Path) -> Path:
    return write_bundle(project, tmp_path / "bundle.tar")


def write_bundle(project: Path, path: Path, subfolder: str = ".") -> Path:
    with new_bundle(path) as writer:
        archive = io.BytesIO()
        source.write_archive(project, archive)
        writer.add(names.SOURCE, archive)
        writer.add_text(names.SITE, "network: {pip_index_url: https://mirror/simple}\n")
        writer.add_text("wheels/cpu/a-1-py3-none-any.whl", "a wheel")
        writer.add_text(IMAGE.member, "an image")
        document = BundleDocument(
            version=VERSION,
            project="tiny",
            commit=COMMIT,
            lineage=Lineage(branch="packed", depth=7),
            dirty=True,
            created_at=datetime.now(UTC),
            python="3.11",
            machine="x86_64",
            config=str(Path("source", subfolder, "ci.yaml")),
            subfolder=subfolder,
            images={"cpu": IMAGE},
            members=writer.members,
            left_out=(),
        )
        writer.add_text(names.DOCUMENT, document.model_dump_json())
    return path


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_a_run_is_that_of_the_packed_commit(bundle: Path, tmp_path: Path) -> None:
    assert run("run", "--bundle", bundle) == ExitCode.PASSED
    result = read_results(tmp_path / "results" / "latest" / "results.json")
    assert (result.project, result.commit, result.dirty) == ("tiny", COMMIT, True)
    assert result.lineage == Lineage(branch="packed", depth=7)
    assert "-0123abcd-" in result.run_id
    assert result.platforms[0].findings == (on_rows.full_suite(),)


def test_sources_with_a_history_above_them(project: Path, tmp_path: Path) -> None:
    for command in ("init", "add .", "-c user.name=A -c user.email=a@b.c commit -m one", "tag v1"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    (project / "test_a.py").write_text(
        "import subprocess\n"
        "def test_a():\n"
        "    command = ['git', 'describe', '--tags', '--dirty']\n"
        "    assert subprocess.check_output(command, text=True) == 'v1-dirty\\n'\n"
    )
    path = write_bundle(project, tmp_path / "bundle.tar", git_history.subfolder(project))
    assert run("run", "--bundle", path) == ExitCode.PASSED
    result = read_results(tmp_path / "results" / "latest" / "results.json")
    assert result.platforms[0].findings == (on_rows.full_suite(),)
    with open_bundle(path, []) as opened:
        request = opened.request(tmp_path, RunOptions(), None)
        [plan] = opened.plans(request, tmp_path)
        assert (request.source, plan.subfolder) == (plan.source / "project", "project")
        assert (plan.source / ".git").is_dir()


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The error of a command line."""
    assert run(*arguments) == ExitCode.USAGE
    return capsys.readouterr().err


def test_a_run_goes_on_with_its_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "--bundle", bundle) == ExitCode.PASSED
    folder = (tmp_path / "results" / "latest").resolve()
    for name in ("results.json", "cpu/events.jsonl", "cpu/engine-events.jsonl"):
        (folder / name).unlink()  # only its request is known
    resume = ("--resume", folder.name)
    assert f"Add the option: --bundle {bundle}" in refused(capsys, "run", *resume)
    assert run("run", "--bundle", bundle, *resume) == ExitCode.PASSED
    result = read_results(folder / "results.json")
    assert (result.run_id, result.commit) == (folder.name, COMMIT)
    assert result.platforms[0].findings == (on_rows.full_suite(),)
    message = "--resume: continues the run with its original platforms and options"
    assert message in refused(capsys, "run", "cpu", "--bundle", bundle, *resume)
    changed(bundle, COMMIT.encode(), COMMIT[::-1].encode())
    message = f"--resume: run {folder.name} does not belong to {bundle}"
    assert message in refused(capsys, "run", "--bundle", bundle, *resume)


def test_a_test_runs_again_with_the_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "--bundle", bundle) == ExitCode.PASSED
    words = ("rerun", "latest", "cpu", "test_a.py::test_a")
    capsys.readouterr()
    assert run(*words) == ExitCode.PASSED
    assert "1 passed in " in capsys.readouterr().out
    changed(bundle, COMMIT.encode(), COMMIT[::-1].encode())
    run_id = (tmp_path / "results" / "latest").resolve().name
    assert f"rerun: run {run_id} does not belong to {bundle}" in refused(capsys, *words)
    bundle.unlink()
    assert str(bundle) in refused(capsys, *words)


def test_shards_of_a_bundle(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", "--bundle", bundle, "--shards", 2) == ExitCode.PASSED
    [row] = read_results(tmp_path / "results" / "latest" / "results.json").platforms
    assert [(it.tests, it.exit_code) for it in row.shards] == [(1, 0), (0, 5)]
    capsys.readouterr()
    assert run("rerun", "latest", "cpu") == ExitCode.PASSED
    printed = capsys.readouterr().out
    assert "1 passed in " in printed
    assert "deselected" not in printed


def test_what_was_packed_is_taken_whole(project: Path, tmp_path: Path) -> None:
    tracked = project / "tests" / "environment" / "pyvenv.cfg"  # files() leaves its folder out
    (tracked.parent / "bin").mkdir(parents=True)
    tracked.touch()
    relative = tracked.relative_to(project)
    assert relative not in source.files(project)
    assert relative in source.files(project, packed=True)
    packed = source.SourceState(commit=COMMIT, dirty=False)
    loaded_project = load_project(project / "ci.yaml", {})
    request = new_request(
        loaded_project,
        ["cpu"],
        source_folder=project,
        results=tmp_path / "results",
        packed=packed,
    )
    request = request.model_copy(update={"bundle": tmp_path / "bundle.tar"})
    assert source_changes(request, tmp_path / "results") is None
    tracked.write_text("another")
    assert "have changed since the run began" in str(source_changes(request, tmp_path / "results"))


def test_the_plan_has_image_and_wheels_of_the_bundle(bundle: Path, tmp_path: Path) -> None:
    with open_bundle(bundle, []) as opened:
        request = opened.request(tmp_path, RunOptions(cold=True), None)
        [plan] = opened.plans(request, tmp_path)
        assert plan.network.wheels is not None
        assert [path.read_text() for path in plan.network.wheels.iterdir()] == ["a wheel"]
    assert plan.engine.kind == "docker"
    assert plan.cache is not None
    assert plan.cache.cold
    image = plan.needed_image
    assert image.archive is not None
    packed = (image.tag, image.archive.id, image.archive.layers)
    assert packed == (IMAGE.tag, IMAGE.id, IMAGE.layers)
    environment = plan.network.environment
    assert environment["PIP_NO_INDEX"] == "1"
    assert environment["PIP_FIND_LINKS"] == CONTAINER_WHEELS
    assert environment["PIP_INDEX_URL"] == "https://mirror/simple"  # the site's, for other tools
    assert not opened.folder.exists()


def test_a_bundle_runs_on_no_other_engine(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "ci.site.yaml"
    site.write_text("platforms: {cpu: {other_engines: [host]}}\n")
    monkeypatch.setenv("INFINI_CI_SITE", str(site))
    with open_bundle(bundle, []) as opened:
        [plan] = opened.plans(opened.request(tmp_path, RunOptions(), None), tmp_path)
    assert plan.retries == 1
    assert plan.other_engines == ()


def test_the_image_is_where_the_plan_says(bundle: Path) -> None:
    with open_archive(bundle) as reader, tarfile.open(bundle) as members:
        assert reader.open(IMAGE.member).read() == b"an image"
        member = members.extractfile(names.FOLDER + IMAGE.member)
        assert member is not None
        assert member.read() == b"an image"


def changed(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))


damaged = partial(changed, old=b"an image", new=b"an IMAGE")


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:600])  # of the first member there is the header


def cut_at_a_member(path: Path) -> None:
    with tarfile.open(path) as archive:
        end = archive.getmember(names.FOLDER + names.DOCUMENT).offset
    path.write_bytes(path.read_bytes()[:end])


def with_a_member(path: Path, name: str) -> None:
    with tarfile.open(path, "a") as archive:
        archive.addfile(tarfile.TarInfo(name))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "images/cpu.tar.gz: sha256 is "),
        (truncated, "it ends within "),
        (cut_at_a_member, "its last member, bundle.json, is missing"),
        (
            partial(changed, old=b'{"version":1,', new=b'{"version":2,'),
            "a bundle of version 2, expected version 1",
        ),
        (
            partial(changed, old=b'"dirty":true', new=b'"DIRTY":true'),
            "bundle.json: 2 validation errors",
        ),
        (partial(with_a_member, name="bundle/extra"), "extra: 0 bytes, expected nothing"),
        (partial(with_a_member, name="elsewhere"), "elsewhere is not a valid member of a bundle"),
        (
            partial(with_a_member, name="bundle/site/ci.site.yaml"),
            "bundle/site/ci.site.yaml is not a valid member of a bundle",
        ),
        (partial(Path.write_text, data="PK\x03\x04"), "not a tar file: "),
        (partial(Path.write_bytes, data=b""), "not a tar file: "),
        (Path.unlink, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_whole_bundle_is_refused(
    bundle: Path,
    spoil: Callable[[Path], None],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spoil(bundle)
    assert message in refused(capsys, "run", "--bundle", bundle)
    assert not Path("results").exists()


def test_an_image_that_is_not_asked_for_is_not_read(bundle: Path) -> None:
    damaged(bundle)
    with open_archive(bundle) as reader:
        reader.verify(without=[IMAGE.member])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpu"], "platform 'gpu' is not in the bundle, which has cpu; did you mean 'cpu'?"),
        (["--engine", "host"], "cpu would run on the host engine"),
        (["--source", "."], CONTAINS_BOTH),
        (["--config", "ci.yaml"], CONTAINS_BOTH),
    ],
)
def test_what_a_bundle_cannot_do(
    bundle: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "run", *arguments, "--bundle", bundle)


def test_doctor_checks_what_a_bundle_needs(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "cannot be combined with --config" in refused(
        capsys, "doctor", "--config", "ci.yaml", "--bundle", bundle
    )
    run("doctor", "--bundle", bundle, "--engine", "host")
    printed = capsys.readouterr().out
    assert "configuration of cpu: --bundle: cpu would run on the host engine" in printed
    has = f"{commit_name(COMMIT, dirty=True)}, as {bundle} has them"
    assert f"ok       sources: {has}; a run needs no git\n" in printed
    assert "git init" not in printed


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar"
    path.write_text("the last one")
    with pytest.raises(FileNotFoundError, match="gone"), new_bundle(path) as writer:
        writer.add_file("README.md", tmp_path / "gone")
    assert path.read_text() == "the last one"
    assert list(tmp_path.iterdir()) == [path]


def loaded(
    config: Path, sources: Path, *, pip: NetworkConfig | None = None
) -> tuple[Project, RunRequest]:
    project = load_project(config, {}, pip)
    return project, new_request(
        project, ["cpu"], source_folder=sources, results=sources / "results"
    )


def test_a_configuration_in_the_sources_is_packed_with_them(project: Path) -> None:
    found = find_configuration(*loaded(project / "ci.yaml", project))
    assert (found.path, found.files) == ("source/ci.yaml", {})


def test_a_configuration_elsewhere_is_packed_with_the_files_that_it_names(
    project: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("recipe", "needs.txt"):
        (folder / name).touch()
    platforms = "{recipe: recipe, requirements: needs.txt}"
    config = folder / "tiny.yaml"
    config.write_text(CONFIG.replace("cpu: {}", f"cpu: {platforms}"))
    found = find_configuration(*loaded(config, project))
    assert found.path == "config/tiny.yaml"
    assert sorted(found.files) == ["needs.txt", "recipe", "tiny.yaml"]
    config.write_text(CONFIG.replace("cpu: {}", "cpu: {recipe: ../project/test_a.py}"))
    with pytest.raises(UsageError, match=r"test_a\.py is neither in the sources nor below "):
        find_configuration(*loaded(config, project))


def test_no_password_of_the_site_is_packed(project: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    (project / "ci.site.yaml").write_text(
        "network: {http_proxy: 'user:word@proxy:3128', no_proxy: here}\n"
        "platforms: {cpu: {base_image: mirror/python}}\n"
    )
    pip = NetworkConfig(
        pip_index_url="https://user:word@mirror/simple",
        ca_bundle=str(bundle),
        pip_find_links=".",
        pip_timeout=180.0,
    )
    packed = loaded(project / "ci.yaml", project, pip=pip)
    text, left_out = site_settings(*packed, find_configuration(*packed))
    assert yaml.safe_load(text) == {
        "network": {"ca_bundle": "../site/ca-bundle.pem", "no_proxy": "here"},
        "platforms": {"cpu": {"base_image": "mirror/python"}},
    }
    assert left_out == [
        "network.pip_index_url: it may hold a password",
        "network.http_proxy: it may hold a password",
    ]


def test_a_password_in_the_configuration_is_refused(project: Path) -> None:
    text = CONFIG + "network: {pip_index_url: 'https://user:word@mirror/simple'}\n"
    (project / "ci.yaml").write_text(text)
    packed = loaded(project / "ci.yaml", project)
    with pytest.raises(ConfigError, match=r"network\.pip_index_url may hold a password") as raised:
        site_settings(*packed, find_configuration(*packed))
    assert "word@" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python -m pip install .[dev] -v", [".[dev]", "-v"]),
        ("/opt/venv/bin/pip3.11 install .", ["."]),
        ("python -m pip install {wheel}[dev]", [".[dev]", "--no-build-isolation"]),
        ("python -m pip list", None),
        ("make install", None),
    ],
)
def test_the_requirements_that_pip_gets(command: str, arguments: list[str] | None) -> None:
    stage = stage_plan("install", *shlex.split(command), column=Column.BUILD_INSTALL)
    assert pip_arguments(stage, for_wheels=["--no-build-isolation"]) == arguments
