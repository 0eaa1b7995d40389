"""The command line: options, exit codes, what goes to which stream."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from hypothesis import HealthCheck, settings

from ci import cli
from ci.commands import run as run_command
from ci.commands.options import platform_name
from ci.errors import ExitCode, InfrastructureError
from ci.model.platforms import PLATFORMS
from ci.model.results import RunResult
from ci.plan.load import schema_text
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.invocation import REPOSITORY
from tests.ci.local_engine import LocalEngine

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

ALL = ", ".join(PLATFORMS)
RUN = "did you mean 'run'?"
CONFIG = "project: tiny\nplatforms:\n  cpu: {}\n"
STAGES = """\
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest, kind: pytest}
"""


@pytest.fixture(autouse=True)
def _no_site(monkeypatch: Patch, tmp_path: Path) -> None:
    """The tests' machine may have settings of its own."""
    for name in ("PIP_INDEX_URL", "PIP_FIND_LINKS", "INFINI_CI_SITE", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "ci.yaml").write_text(CONFIG + STAGES)
    (folder / "test_a.py").write_text("def test_a(): pass\n")
    return folder


@pytest.fixture
def engine(monkeypatch: Patch, tmp_path: Path) -> LocalEngine:
    local = LocalEngine(record=tmp_path / "calls")
    monkeypatch.setattr(run_command, "select_engine", lambda _: local)
    return local


def run(*arguments: object) -> int:
    return cli.main([str(argument) for argument in arguments])


@pytest.mark.usefixtures("engine")
def test_run_shows_the_table_and_where_the_results_are(
    source: Path, capsys: Output, tmp_path: Path
) -> None:
    assert run("run", "cpu", "--source", source) == ExitCode.PASSED
    shown = capsys.readouterr()
    assert "1 passed in " in shown.out
    assert "Full suite passed." in shown.out
    assert "CPU: pytest finished after " in shown.err
    assert "CPU: image finished after 0.5 s (cached)" in shown.err
    assert (tmp_path / "results" / "latest" / "results.json").is_file()


@pytest.mark.usefixtures("engine")
def test_a_platform_may_be_named_as_in_the_table(source: Path) -> None:
    assert run("run", "CPU", "--source", source) == ExitCode.PASSED
    assert {platform_name(it.label) for it in PLATFORMS.values()} == {*PLATFORMS}


@pytest.mark.usefixtures("engine")
def test_run_with_json_prints_nothing_else(source: Path, capsys: Output, tmp_path: Path) -> None:
    assert (
        run("run", "cpu", "--source", source, "--format", "json", "--results", "r")
        == ExitCode.PASSED
    )
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "r" / "latest" / "results.json").read_text()
    assert RunResult.model_validate_json(printed).platforms[0].pytest is not None


@pytest.mark.usefixtures("engine")
def test_a_failing_suite_is_exit_code_1(source: Path) -> None:
    (source / "test_a.py").write_text("def test_a(): assert False\n")
    assert run("run", "cpu", "--source", source) == ExitCode.PRODUCT_FAILURE


def test_an_engine_failure_is_exit_code_3(source: Path, engine: LocalEngine) -> None:
    engine.prepare_error = InfrastructureError("no space left")
    assert run("run", "cpu", "--source", source) == ExitCode.INFRASTRUCTURE


def printing_to(stdout: IO[bytes], *arguments: object) -> tuple[int, str]:
    """Run a command in a process of its own; return its exit code and its errors."""
    command = [sys.executable, "-m", "ci", *map(str, arguments)]
    ended = subprocess.run(
        command, cwd=REPOSITORY, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )
    return ended.returncode, ended.stderr


def read_by_no_one(*arguments: object) -> tuple[int, str]:
    """Run a command whose output goes to a pipe that no one reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stdout:
        return printing_to(stdout, *arguments)


@pytest.mark.parametrize("command", ["platforms", "schema", "run cpu --dry-run"])
def test_a_reader_that_ends_early_gets_no_error(command: str) -> None:
    assert read_by_no_one(*command.split()) == (ExitCode.OUTPUT_CLOSED, "")


@pytest.mark.usefixtures("engine")
def test_the_reader_of_a_report_may_end_early(source: Path, tmp_path: Path) -> None:
    assert run("run", "cpu", "--source", source) == ExitCode.PASSED
    ended = read_by_no_one("report", "--results", tmp_path / "results")
    assert ended == (ExitCode.OUTPUT_CLOSED, "")


@pytest.mark.usefixtures("engine")
def test_a_lost_store_is_rebuilt_as_the_message_says(
    source: Path, tmp_path: Path, capsys: Output
) -> None:
    assert run("run", "cpu", "--source", source) == ExitCode.PASSED
    (tmp_path / "results" / "ci.db").unlink()
    assert run("report") == ExitCode.USAGE
    error, remedy = capsys.readouterr().err.splitlines()[-2:]
    assert error == "error: results contains 1 run, but no store ci.db"
    assert remedy.startswith("Rebuild it: ")
    assert run(*remedy.split(" -m ci ")[1].split()) == ExitCode.PASSED
    assert run("report") == ExitCode.PASSED


def test_a_full_disk_is_reported_in_words() -> None:
    with Path("/dev/full").open("wb") as full:
        code, error = printing_to(full, "schema")
    assert code == ExitCode.INFRASTRUCTURE
    assert error.startswith("error: No space left on device\nMake room there: ")


def test_an_interrupt_is_exit_code_130(source: Path, engine: LocalEngine) -> None:
    engine.interrupted = True
    assert run("run", "cpu", "--source", source) == ExitCode.INTERRUPTED


def test_no_engine_where_one_is_asked_for(source: Path, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    assert run("run", "cpu", "--engine", "docker", "--source", source) == ExitCode.INFRASTRUCTURE
    shown = capsys.readouterr().err
    assert shown.startswith("error: no Docker Engine answers")
    assert "--engine host" in shown
    assert not Path("results").exists()


def test_a_dry_run_runs_nothing_and_masks_credentials(
    source: Path, engine: LocalEngine, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@host/simple")
    assert run("run", "cpu", "--dry-run", "--source", source) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert shown.startswith(f"# CPU, {engine.name} engine\nplatform: cpu\n")
    assert "\nindex: https://***@host/simple\n" in shown
    assert engine.calls == []
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["run"],
            "run: got no platform, expected at least one\n"
            f"Configured: {ALL}. To run all of them: --all.",
        ),
        (["run", "cpu", "--all"], "run: got --all and cpu, expected one of the two"),
        (["run", "--all", "cpuu"], "unknown platform 'cpuu', "),
        (["run", "cpuu"], f"unknown platform 'cpuu', configured: {ALL}; did you mean 'cpu'?"),
        (["run", "gpu"], f"unknown platform 'gpu', configured: {ALL}\n"),
        (["run", "cpu", "a", "x"], f"unknown platform 'a', configured: {ALL}\nunknown"),
        (["run", "cpu", "--source", "nowhere"], "nowhere/ci.yaml: no such file"),
        (["run", "cpu", "--config", "no.yaml"], "no.yaml: no such file"),
        (["run", "cpu", "--config", "/"], "error: /: cannot be read: Is a directory\n"),
        (["run", "--resume", "x"], "--resume: there is no run 'x' in results"),
        (["run", "cpu", "--resume", "x"], "Leave out PLATFORM, --all, --engine,"),
        (
            ["run", "--reruns", "0", "--resume", "x"],
            "--cold, --trust, --wheel, --sdist, --reruns, --shards, --select and --until.",
        ),
        (
            ["run", "--trust=branch", "--resume", "x"],
            "--cold, --trust, --wheel, --sdist, --reruns, --shards, --select and --until.",
        ),
        (["report", "--results", "nowhere"], "nowhere contains no results yet"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    arguments: list[str], message: str, capsys: Output
) -> None:
    assert run(*arguments) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["build"]),
        ["run", "cpu", "--engin", "host"],
        *(["run", "cpu", "--jobs", "0"], ["run", "cpu", "--jobs", "many"]),
        ["run", "cpu", "--trust", "higher"],
    ],
)
def test_what_the_parser_refuses_is_exit_code_2_too(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(*arguments)
    assert "usage: python -m ci" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rn", "cpu"], f"unknown command 'rn', expected one of {', '.join(cli.COMMANDS)}; {RUN}"),
        (["xyz"], f"unknown command 'xyz', expected one of {', '.join(cli.COMMANDS)}"),
        (["--halp"], "unknown option '--halp'; did you mean '--help'?"),
        (["run", "cpu", "--dryrun"], "unknown option '--dryrun'; did you mean '--dry-run'?"),
        (["run", "cpu", "--engin=host"], "unknown option '--engin=host'; did you mean '--engine'?"),
        (["run", "cpu", "--xyz"], "unknown option '--xyz'"),
        (["report", "a", "b"], "unknown argument 'b'"),
        (
            ["compare", "a", "b", "--format", "jsn"],
            "--format: got 'jsn', expected one of table, markdown, json; did you mean 'json'?",
        ),
        (
            ["export", "--format=csv", "--output=x", "--platform=cpuu"],
            f"--platform: got 'cpuu', expected one of {ALL}; did you mean 'cpu'?",
        ),
        (
            ["compare", "a", "b", "--fail-on", "regresion"],
            "expected one of regression, suspected; did you mean 'regression'?",
        ),
    ],
)
def test_a_word_that_is_nearly_right_gets_a_hint(
    words: list[str], hint: str, capsys: Output
) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        run(*words)
    assert capsys.readouterr().err.endswith(f"{hint}\n")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_no_option_of_any_command_answers_in_python_s_words(name: str, capsys: Output) -> None:
    parser = argparse.ArgumentParser()
    cli.command_module(name).add_options(parser)
    typed = [action for action in parser._actions if action.type or action.choices]
    for action in typed:
        if action.type in (Path, platform_name):  # they take any text
            continue
        option = action.option_strings
        for text in ("x", "-1", "", "1e999", "nan", "\u0664", "9" * 5000, "json "):
            with pytest.raises(SystemExit, match=r"^2$"):
                parser.parse_args([f"{option[0]}={text}"] if option else [text])
            said = capsys.readouterr().err
            assert f"argument {option[0] if option else action.metavar}" in said
            shown = "***" if action.dest == "notify" else text  # which may be a secret
            assert f"got '{shown}', expected " in said
            assert "invalid" not in said.replace("--invalid", "")  # an option of `alarms`


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_one_form(name: str) -> None:
    """Its options first, then the command to call."""
    module = cli.command_module(name)
    own = (it for it in vars(module).values() if getattr(it, "__module__", "") == module.__name__)
    assert next(own) is module.add_options
    assert module.execute in own
    assert module.execute.__doc__


# A shell reads what it prints; it writes files; it prints what its steps do.
WITHOUT_JSON = ("completion", "export", "run-kit")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_json(name: str, capsys: Output) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        run(name, "--help")
    shown = capsys.readouterr().out
    assert "--json" not in shown
    assert name in WITHOUT_JSON or re.search(
        r"--format \{(table,|text,)?(markdown,)?json[,}]", shown
    )


def test_a_run_that_is_not_there(published: RunResult, tmp_path: Path, capsys: Output) -> None:
    for name, start in (("nosuchrun", "there is no run 'nosuchrun': "), ("latest", "")):
        assert run("report", name, "--results", "nowhere") == ExitCode.USAGE
        assert capsys.readouterr().err == (
            f"error: {start}nowhere contains no results yet\n"
            "Run a platform first: python -m ci run cpu --results nowhere\n"
        )
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
    assert run("report", f"{published.run_id}x", "--results", tmp_path) == ExitCode.USAGE
    shown = capsys.readouterr()
    assert f"the store holds no run '{published.run_id}x'; did you mean" in shown.err
    assert f"The newest runs: {published.run_id}." in shown.err
    assert run("report", "x", "--results", tmp_path, "--format=json") == ExitCode.USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("engine")
def test_json_of_earlier_versions_is_the_same(source: Path, capsys: Output) -> None:
    assert run("platforms", "--json", "--config", source / "ci.yaml") == ExitCode.PASSED
    assert json.loads(capsys.readouterr().out) == ["cpu"]


def test_a_wrong_configuration_shows_every_finding(source: Path, capsys: Output) -> None:
    (source / "ci.yaml").write_text(CONFIG + "projct: x\nartifacts: 1\n")
    (source / "ci.site.yaml").write_text("netwrk: {}\n")
    assert run("run", "cpu", "--source", source) == ExitCode.USAGE
    shown = capsys.readouterr().err
    assert "ci.yaml:4: projct: got an unknown key" in shown
    assert "ci.yaml:5: artifacts: got 1 (integer), expected a mapping" in shown
    assert "ci.site.yaml:1: netwrk: got an unknown key" in shown


def test_a_source_without_files(tmp_path: Path, engine: LocalEngine, capsys: Output) -> None:
    (tmp_path / "ci.yaml").write_text(CONFIG + STAGES)
    (tmp_path / "empty").mkdir()
    assert run("run", "cpu", "--source", "empty", "--config", "ci.yaml") == ExitCode.USAGE
    assert "holds no files" in capsys.readouterr().err
    assert engine.calls == []


@pytest.mark.usefixtures("engine")
def test_a_folder_whose_name_is_not_utf_8(source: Path, capsys: Output) -> None:
    odd = source.rename(source.with_name("caf\udce9"))
    assert run("run", "cpu", "--source", odd) == ExitCode.USAGE
    assert r"caf\udce9: the name is not UTF-8" in capsys.readouterr().err


def test_a_missing_recipe_is_named(source: Path, capsys: Output) -> None:
    (source / "ci.yaml").write_text(CONFIG.replace("{}", "{recipe: my.Dockerfile}"))
    assert run("run", "cpu", "--source", source) == ExitCode.USAGE
    assert "platforms.cpu.recipe: got 'my.Dockerfile', expected a file" in capsys.readouterr().err


@pytest.mark.usefixtures("engine")
def test_several_platforms_named_twice_run_once(source: Path, engine: LocalEngine) -> None:
    assert run("run", "cpu", "cpu", "--source", source) == ExitCode.PASSED
    assert engine.calls == ["prepare cpu", "execute cpu"]


def test_report_of_the_latest_run_and_of_a_named_one(
    published: RunResult, tmp_path: Path, capsys: Output
) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
    for arguments in ([], [published.run_id]):
        assert run("report", *arguments, "--results", tmp_path) == ExitCode.PASSED
        assert "9206 passed, 8664 skipped" in capsys.readouterr().out
    assert run("report", "--results", tmp_path, "--format", "json") == ExitCode.PASSED
    assert capsys.readouterr().out == published.to_json()
    assert run("report", "--results", tmp_path, "--format", "markdown") == ExitCode.PASSED
    reference = Path(__file__).parents[1] / "data" / "published.md"
    assert reference.read_text(encoding="utf-8") in capsys.readouterr().out


def test_report_of_an_unknown_run(tmp_path: Path, capsys: Output) -> None:
    Store(default_url(tmp_path)).close()
    assert run("report", "x", "--results", tmp_path) == ExitCode.USAGE
    assert "the store holds no run yet" in capsys.readouterr().err


def test_the_results_folder_comes_from_the_environment(
    published: RunResult, tmp_path: Path, monkeypatch: Patch
) -> None:
    with Store(default_url(tmp_path)) as store:
        store.save(published, {})
    monkeypatch.setenv("INFINI_CI_RESULTS", str(tmp_path))
    assert run("report") == ExitCode.PASSED


@pytest.mark.usefixtures("engine")
def test_a_results_folder_that_cannot_be_made(source: Path, capsys: Output) -> None:
    Path("file").touch()
    code = run("run", "cpu", "--source", source, "--results", "file/results")
    assert code == ExitCode.USAGE
    assert "--results: file/results: got a file, expected a folder" in capsys.readouterr().err


def test_platforms(capsys: Output) -> None:
    assert run("platforms") == ExitCode.PASSED
    assert capsys.readouterr().out.splitlines()[:3] == [
        "cpu: CPU, torch device cpu",
        "nvidia: NVIDIA, torch device cuda",
        "iluvatar: Iluvatar, torch device cuda, no base image: host engine only",
    ]
    assert run("platforms", "--format", "json") == ExitCode.PASSED
    assert json.loads(capsys.readouterr().out) == ALL.split(", ")


def test_platforms_with_settings(source: Path, capsys: Output) -> None:
    (source / "ci.yaml").write_text(
        "project: tiny\nplatforms:\n  ascend: {simulated: true}\n  moore: {label: MTT}\n"
        "  iluvatar: {base_image: x}\n  cpu: {}\n  nvidia: {}\n  cambricon: {}\n"
    )
    configured = ("ascend", "moore", "iluvatar", "cpu", "nvidia", "cambricon")
    others = ", ".join(name for name in PLATFORMS if name not in configured)
    assert run("platforms", "--config", source / "ci.yaml") == ExitCode.PASSED
    assert capsys.readouterr().out.splitlines() == [
        "ascend: Ascend (simulated device), torch device npu",
        "moore: MTT, torch device musa",
        "iluvatar: Iluvatar, torch device cuda",
        "cpu: CPU, torch device cpu",
        "nvidia: NVIDIA, torch device cuda",
        "cambricon: Cambricon, torch device mlu",
        f"supported, but not configured in ci.yaml: {others}",
    ]


def test_a_container_needs_a_base_image(source: Path, engine: LocalEngine, capsys: Output) -> None:
    platforms = "project: tiny\nplatforms:\n  iluvatar: {devices: {count: 0}}\n"
    (source / "ci.yaml").write_text(platforms + STAGES)
    for option in ([], ["--dry-run"]):
        assert run("run", "iluvatar", "--source", source, *option) == ExitCode.USAGE
        assert capsys.readouterr().err == (
            "error: platforms.iluvatar: no base image is configured, and no public registry has"
            " one\n"
            "Load the vendor's archive (docker load) and name it in INFINI_CI_BASE_IMAGE_ILUVATAR"
            " or as platforms.iluvatar.base_image in ci.site.yaml, or use --engine host.\n"
        )
    assert engine.calls == []
    assert not Path("results").exists()
    engine.containers = False
    assert run("run", "iluvatar", "--source", source) == ExitCode.PASSED


def test_a_dry_run_shows_the_platforms_that_can_be_run(
    source: Path, engine: LocalEngine, capsys: Output
) -> None:
    platforms = "project: tiny\nplatforms:\n  iluvatar: {devices: {count: 0}}\n  cpu: {}\n"
    (source / "ci.yaml").write_text(platforms + STAGES)
    assert run("run", "--all", "--source", source, "--dry-run") == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out.startswith(f"# CPU, {engine.name} engine\n")
    assert "error: platforms.iluvatar: no base image is configured" in shown.err


@pytest.mark.usefixtures("engine")
def test_a_suite_that_refuses_to_run_is_not_resumed(source: Path, capsys: Output) -> None:
    (source / "ci.yaml").write_text(CONFIG + STAGES.replace("m pytest", "m pytest --no-such"))
    assert run("run", "cpu", "--source", source) == ExitCode.PRODUCT_FAILURE
    shown = capsys.readouterr().out
    assert "product incomplete, harness clean" in shown
    assert "--resume" not in shown


def test_an_interrupted_run_says_how_to_go_on(
    source: Path, engine: LocalEngine, capsys: Output, tmp_path: Path
) -> None:
    engine.prepare_error = KeyboardInterrupt()
    assert run("run", "cpu", "--source", source, "--results", "r") == ExitCode.INTERRUPTED
    run_id = (tmp_path / "r" / "latest").readlink().name
    assert f": python -m ci run --resume {run_id} --results r\n" in capsys.readouterr().out
    assert run("run", "--resume", f"{run_id}x", "--results", "r") == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"error: --resume: there is no run '{run_id}x' in r; did you mean '{run_id}'?\n"
        f"The newest: {run_id}.\n"
    )


def test_without_its_dependencies_it_says_what_installs_them() -> None:
    command = [sys.executable, "-S", "-m", "ci", "platforms"]  # -S: no site-packages
    done = subprocess.run(
        command, cwd=REPOSITORY, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert "is not installed" in done.stderr
    assert "python3 noxfile.py -s build-cpu" in done.stderr
    assert "Traceback" not in done.stderr


WINDOWS = """\
import runpy, signal, sys
sys.modules[sys.argv.pop(1)] = None
del signal.SIGHUP, signal.SIGWINCH
runpy.run_module("ci", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["fcntl", "termios", "tty"])
def test_windows_is_named(module: str) -> None:
    command = [sys.executable, "-c", WINDOWS, module, "run", "cpu", "--dry-run"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INFRASTRUCTURE
    error, remedy = done.stderr.splitlines()
    assert error.startswith("error: this program needs Linux or macOS: ")
    assert remedy.startswith("On Windows, install it and run it in WSL 2: ")


HIDDEN = """\
import runpy, sys
sys.modules["virtualenv"] = None
runpy.run_module("ci", run_name="__main__", alter_sys=True)
"""


def test_an_environment_that_was_made_before_virtualenv_was_needed(tmp_path: Path) -> None:
    (tmp_path / "ci.yaml").write_text(CONFIG)
    words = ["run", "cpu", "--engine", "host", "--source", str(tmp_path)]
    command = [sys.executable, "-c", HIDDEN, *words, "--results", str(tmp_path / "results")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert f"{sys.executable} does not have the package virtualenv" in done.stdout
    assert " -m pip install --group ci" in done.stderr  # the table shortens a long reason
    assert "Traceback" not in done.stdout + done.stderr


def optimized(*words: str, level: str = "2") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONOPTIMIZE": level, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_optimized_python_makes_no_difference() -> None:
    """Descriptions of the schema are docstrings, which `PYTHONOPTIMIZE=2` leaves out."""
    assert optimized("-m", "ci", "schema").stdout == schema_text()
    refused = optimized("-O", "-m", "ci", "schema", level="")
    assert (refused.returncode, refused.stdout) == (ExitCode.USAGE, "")
    assert refused.stderr.startswith("error: Python got -O,")


@pytest.mark.parametrize("folder", ["tests/ci", "tests/codegen"])
def test_tests_refuse_a_python_without_assertions(folder: str) -> None:
    refused = optimized("-m", "pytest", folder)
    assert refused.returncode == pytest.ExitCode.USAGE_ERROR
    assert refused.stderr == (
        "ERROR: Python executes no assertions: got PYTHONOPTIMIZE or -O (level 2), expected "
        f"neither. Run: env -u PYTHONOPTIMIZE {sys.executable} -m pytest\n\n"
    )


def test_no_property_has_a_time_limit() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check


def test_a_pytest_of_a_test_leaves_the_folders_of_other_runs_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path): print(tmp_path)")
    command = [sys.executable, "-m", "pytest", "-qs", "-p", "no:cacheprovider", "test_it.py"]
    inner = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert str(tmp_path_factory.getbasetemp()) in inner.stdout


RUNS_NEED = ("ci.engines", "ci.plan.project", "ci.run", "docker")


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        *((command, RUNS_NEED) for command in ("compare", "history", "report")),
        ("contract", ("ci.engines", "ci.run", "docker", "numpy", "sqlalchemy")),
        ("import", ("ci.engines", "ci.run", "docker", "numpy", "sqlalchemy")),
        *(
            (command, ("ci.engines", "ci.run", "cryptography", "docker", "numpy", "sqlalchemy"))
            for command in ("attest", "gate")
        ),
        ("run", ("numpy", "opentelemetry", "sqlalchemy")),
    ],
)
def test_a_command_starts_without_what_others_need(command: str, unneeded: tuple[str, ...]) -> None:
    """Engines, planning and the store would take as long as all the rest."""
    program = f"import sys; from ci.cli import main; main(['{command}', '--help'])"
    show = f"print(*sorted({{*{unneeded!r}}} & set(sys.modules)))"
    program = f"try: exec({program!r})\nexcept SystemExit: pass\nimport sys; {show}"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
