"""``python -m ci init``: projects as strangers have them, on disk; some of them are hostile."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci import cli
from ci.errors import ExitCode
from ci.plan.config import Config, StageConfig
from ci.plan.load import load_config
from ci.util.process import run

Output = pytest.CaptureFixture[str]

PYPROJECT = '[project]\nname = "Tiny_Pkg"\nversion = "1"\n'
EXTRA = PYPROJECT + '[project.optional-dependencies]\ntest = ["pytest>=8", "hypothesis"]\n'
GROUPS = (
    PYPROJECT
    + '[dependency-groups]\ndocs = ["sphinx"]\ntests = [{include-group = "base"}]\n'
    + 'base = ["pytest"]\n'
)
TOX = """\
[base]
deps = pytest-mock
[testenv]
package = wheel
deps =
    -r {toxinidir}/requirements/tests.txt
    {[base]deps}
    mypy: mypy
    tests: pytest >= 8  # the runner
setenv =
    STRICT = 1
    COVERAGE_FILE = {toxworkdir}/.coverage
extras = fast
commands_pre = python -m tools
commands =
    tests: {envpython} -m pytest --basetemp={envtmpdir} --cov tiny -n 2 \\
        {posargs:tests} docs
"""
NOX = """\
import os
import nox
os.system("touch executed")
DEPS = ["pytest", "pytest-mock"]
def prepare(session):
    session.install(*DEPS)
@nox.session(python=["3.11"])
def lint(session):
    session.install("ruff")
@nox.session
def tests(session):
    prepare(session)
    session.install("-e", ".[fast]", f"torch=={1}")
    session.install(*nox.project.dependency_groups(PYPROJECT, "tests"))
    session.run("coverage", "run", "-m", "pytest", "tests", *session.posargs)
"""
POETRY = """\
[tool.poetry]
name = "tiny"
[tool.poetry.dependencies]
python = "^3.9"
[tool.poetry.group.dev.dependencies]
pytest = "^7.1.2"
freezegun = {version = "~1.5", extras = ["more"], markers = "python_version < '4'"}
ruff = "*"
odd = "^0.0.3 || ^1"
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in {"tests/test_tiny.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def init(folder: Path, *words: str) -> int:
    return cli.main(["init", str(folder), *words])


def written(folder: Path, files: Mapping[str, str]) -> Config:
    assert init(write(folder, files)) == ExitCode.PASSED
    return load_config(folder / "ci.yaml")


@pytest.mark.parametrize(
    ("files", "install", "test"),
    [
        ({"pyproject.toml": PYPROJECT}, ".", "python -m pytest"),
        ({"pyproject.toml": EXTRA}, ".[test]", "python -m pytest"),
        ({"pyproject.toml": GROUPS}, ". --group=tests", "python -m pytest"),
        (
            {
                "pyproject.toml": PYPROJECT + '[project.optional-dependencies]\ndev = ["a[b]"]\n'
                'all = ["tiny-pkg[dev,more]"]\nmore = ["pytest"]\n'
            },
            ".[all]",
            "python -m pytest",
        ),
        (
            {
                "pyproject.toml": PYPROJECT + '[project.optional-dependencies]\nfast = ["numpy"]\n',
                "tox.ini": TOX,
                "requirements/tests.txt": "pytest\npytest-cov\n",
                "docs/index.rst": "",
            },
            ".[fast] -r requirements/tests.txt pytest-mock 'pytest >= 8' pytest-xdist",
            "python -m pytest -n 2 tests docs",
        ),
        (
            {"pyproject.toml": GROUPS, "noxfile.py": NOX},
            ". pytest pytest-mock --group=tests",
            "python -m pytest tests",
        ),
        (
            {
                "pyproject.toml": GROUPS
                + '[tool.tox.env_run_base]\ndependency_groups = ["tests"]\n'
                'set_env = {A = "1"}\n'
                'commands = [["pytest", "--cov-report", "xml", "-x",'
                ' {replace = "posargs", default = ["tests"]}]]\n'
            },
            ". --group=tests",
            "pytest -x tests",
        ),
        (
            {
                "pyproject.toml": PYPROJECT + "[tool.hatch.envs.default]\n"
                'dependencies = ["pytest", "trio"]\nscripts.test = "pytest {args:tests}"\n'
            },
            ". pytest trio",
            "pytest tests",
        ),
        (
            {
                "pyproject.toml": PYPROJECT
                + '[tool.pdm.dev-dependencies]\ntest = ["pytest", "trio"]\n'
            },
            ". pytest trio",
            "python -m pytest",
        ),
        (
            {"pyproject.toml": POETRY},
            ". 'pytest>=7.1.2,<8'"
            """ 'freezegun[more]>=1.5,<1.6; python_version < '"'"'4'"'"'' ruff odd""",
            "python -m pytest",
        ),
        (
            {
                "setup.cfg": "[metadata]\nname = tiny\n[options.extras_require]\n"
                "testing =\n    pytest; python_version > '3'\n    trio\n"
            },
            ".[testing]",
            "python -m pytest",
        ),
        (
            {
                "setup.py": "import setuptools\nTESTS = ['pytest']\nraise SystemExit(3)\n"
                "setuptools.setup(name='tiny', extras_require={'test': TESTS})\n"
            },
            ".[test]",
            "python -m pytest",
        ),
        (
            {"setup.py": "", "dev-requirements.txt": "-r base.txt\n", "base.txt": "pytest==8 \\\n"},
            ". -r dev-requirements.txt",
            "python -m pytest",
        ),
        (
            {"setup.py": "ext_modules=[]", "tiny/__init__.py": ""},
            ".",
            "pytest",
        ),
        (
            {
                "setup.cfg": "[tool:pytest]\naddopts = --cov=tiny -n auto --timeout 9\n"
                "required_plugins = pytest-mock>=3\n"
            },
            ". pytest-cov 'pytest-mock>=3' pytest-timeout pytest-xdist",
            "python -m pytest",
        ),
    ],
)
def test_what_a_project_declares(
    tmp_path: Path, files: Mapping[str, str], install: str, test: str
) -> None:
    stages = written(tmp_path, files).stages
    assert [stage.command for stage in stages] == [f"python -m pip install {install}", test]
    assert not (tmp_path / "executed").exists()


def test_the_name_and_the_variables(tmp_path: Path) -> None:
    config = written(tmp_path, {"pyproject.toml": PYPROJECT, "tox.ini": TOX})
    assert config.project == "tiny_pkg"
    assert config.platforms["cpu"].environment == {"STRICT": "1"}


def test_a_python_that_the_usual_image_does_not_have(tmp_path: Path, capsys: Output) -> None:
    config = written(tmp_path, {"pyproject.toml": PYPROJECT + 'requires-python = ">=3.13"\n'})
    assert config.platforms["cpu"].base_image == "python:3.13-slim-bookworm"
    assert "project.requires-python is >=3.13; with --engine host" in capsys.readouterr().out


def test_it_says_what_it_assumed_and_what_comes_next(tmp_path: Path, capsys: Output) -> None:
    written(tmp_path, {"pyproject.toml": EXTRA, "tox.ini": TOX})
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/ci.yaml: written for the platform cpu",
        "  project: tiny_pkg",
        "  install: . pytest-mock 'pytest >= 8' pytest-xdist  (tox.ini: [testenv])",
        "  test: python -m pytest -n 2 tests  (tox.ini: [testenv])",
        "  environment: STRICT  (tox.ini: [testenv])",
        "note: tox.ini: [testenv]: left out of the command: docs",
        "note: tox.ini: [testenv]: left out: extra fast, requirements/tests.txt",
        "note: added pytest-xdist: test has -n",
        f"Review it, then run: python -m ci run cpu --source {tmp_path}",
    ]


def test_a_command_that_misses_the_compiled_modules(tmp_path: Path, capsys: Output) -> None:
    tox = "[testenv]\ndeps = pytest\ncommands = python -m pytest tests\n"
    written(tmp_path, {"setup.py": "setup(ext_modules=[])", "tox.ini": tox})
    assert "`pytest --import-mode=importlib` tests what was installed" in capsys.readouterr().out


def test_an_existing_file_is_kept(tmp_path: Path, capsys: Output) -> None:
    write(tmp_path, {"pyproject.toml": EXTRA, "ci.yaml": "mine\n"})
    assert init(tmp_path) == ExitCode.USAGE
    assert "got an existing file, expected none\nTo replace it, add: --force" in (
        capsys.readouterr().err
    )
    assert init(tmp_path, "--dry-run") == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert (tmp_path / "ci.yaml").read_text() == "mine\n"
    assert init(tmp_path, "--force") == ExitCode.PASSED
    assert (tmp_path / "ci.yaml").read_text() == shown


def test_the_proposal_as_json(tmp_path: Path, capsys: Output) -> None:
    write(tmp_path, {"pyproject.toml": EXTRA})
    assert init(tmp_path, "--format", "json", "--dry-run") == ExitCode.PASSED
    assert json.loads(capsys.readouterr().out) == {
        "benchmarks": None,
        "file": f"{tmp_path}/ci.yaml",
        "written": False,
        "settings": {"project": "tiny_pkg", "install": ".[test]", "platforms": {"cpu": {}}},
        "origins": {"install": "pyproject.toml: project.optional-dependencies.test"},
        "notes": [],
    }


def test_no_project(tmp_path: Path, capsys: Output) -> None:
    assert init(tmp_path) == ExitCode.USAGE
    assert "got no project, expected pyproject.toml, setup.py or setup.cfg" in (
        capsys.readouterr().err
    )
    assert init(tmp_path / "missing") == ExitCode.USAGE
    assert "missing: got no folder, expected the folder of a project" in capsys.readouterr().err


HOSTILE = {
    "broken TOML": (
        {"pyproject.toml": "[project\n"},
        "pyproject.toml: ignored, as it is not valid TOML",
    ),
    "deep TOML": (
        {"pyproject.toml": PYPROJECT + "a = " + "[" * 100_000},
        "pyproject.toml: ignored, as it is not valid TOML",
    ),
    "no UTF-8": (
        {"pyproject.toml": PYPROJECT, "tox.ini": "\udcff"},
        "tox.ini: ignored, as it is not valid",
    ),
    "broken INI": (
        {"setup.py": "", "tox.ini": "a = 1\n"},
        "tox.ini: ignored, as it is not valid INI",
    ),
    "broken Python": (
        {"pyproject.toml": PYPROJECT, "noxfile.py": "def tests(:\n"},
        "noxfile.py: ignored, as it is not valid Python",
    ),
    "deep Python": (
        {"pyproject.toml": PYPROJECT, "noxfile.py": "-" * 100_000 + "1"},
        "noxfile.py: ignored, as it is not valid Python",
    ),
    "NUL in Python": ({"setup.py": "\0"}, "setup.py: ignored, as it is not valid Python"),
    "a long number": ({"setup.py": "1" * 10_000}, "setup.py: ignored, as it is not valid Python"),
    "too large": (
        {"pyproject.toml": "#" * (1 << 20) + "\n"},
        "pyproject.toml: ignored, as it exceeds 1,024 KiB",
    ),
}


@pytest.mark.parametrize(("files", "note"), HOSTILE.values(), ids=HOSTILE)
def test_a_file_that_cannot_be_read_is_a_note(
    tmp_path: Path, capsys: Output, files: Mapping[str, str], note: str
) -> None:
    for name, text in {"tests/test_tiny.py": "", **files}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert init(tmp_path) == ExitCode.PASSED
    assert f"note: {note}" in capsys.readouterr().out
    load_config(tmp_path / "ci.yaml")


def test_links_and_pipes(tmp_path: Path, capsys: Output) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text(EXTRA)
    folder = write(tmp_path / "project", {"setup.py": ""})
    (folder / "pyproject.toml").symlink_to(secret)
    (folder / "tox.ini").symlink_to("tox.ini")
    os.mkfifo(folder / "noxfile.py")
    assert init(folder) == ExitCode.PASSED
    out = capsys.readouterr().out
    assert "note: pyproject.toml: ignored, as it is outside of the folder" in out
    assert load_config(folder / "ci.yaml").install == "."


def test_values_of_any_type(tmp_path: Path) -> None:
    """Where a table is expected there may be a number, and each text may be nonsense."""
    nonsense = """\
dependency-groups = {"a\\nb" = ["pytest"], test = [{include-group = "test"}, 3]}
[project]
name = 3
dynamic = 4
requires-python = "soon"
optional-dependencies = [1]
[tool]
pdm = 1
tox = {env_run_base = 3, env = {a = 1}, legacy_tox_ini = "[[[\\u0000"}
poetry = {group = {dev = {dependencies = {pytest = 3, a = {version = 4}, b = [1]}}}}
hatch = {envs = {test = {template = 3, scripts = {test = "pytest \\u0000 '"}}, b = 1}}
cibuildwheel = {test-requires = ["&& rm -rf /", "'"]}
pytest = {ini_options = {addopts = 3, required_plugins = 4}}
"""
    files = {"pyproject.toml": nonsense, "setup.cfg": "[options]\npython_requires\n = \n"}
    assert written(tmp_path, files).stages[0].command.startswith("python -m pip install .")


def test_what_a_stranger_names_stays_data(tmp_path: Path, capsys: Output) -> None:
    group = '"x\\"\\n- y: [\\u2028#\\u001b[2J"'
    text = PYPROJECT + f"[dependency-groups]\n{group} = ['pytest']\ntest = ['pytest']\n"
    tox = (
        "[testenv]\ndeps =\n    --index-url https://evil.example\n    ../elsewhere\n    pytest\n"
        "changedir = ../..\ncommands = pytest {posargs} ../../secret /etc -k '$(x) && y'\n"
    )
    config = written(tmp_path, {"pyproject.toml": text, "tox.ini": tox})
    assert config.stages[0].command == "python -m pip install . pytest"
    assert config.stages[1].command == "pytest -k '$(x) && y'"
    assert "\x1b" not in capsys.readouterr().out


def test_values_that_name_each_other_do_not_multiply(tmp_path: Path) -> None:
    names = [f"a{number} = " + f"{{[base]a{number + 1}}}" * 10 for number in range(30)]
    tox = "[base]\n" + "\n".join(names) + "\n[testenv]\ndeps = {[base]a0}\ncommands = pytest\n"
    assert written(tmp_path, {"pyproject.toml": EXTRA, "tox.ini": tox}).install == ".[test]"


# Benchmarks

USES = "def test_sum(benchmark):\n    benchmark(sum, [1])\n"
LINKS = """\
add_executable(sum_bench sum.cc)
target_link_libraries(sum_bench PRIVATE sum benchmark::benchmark)
"""


@pytest.mark.parametrize(
    ("files", "command", "results"),
    [
        (
            {"benchmarks/test_sum.py": USES},
            "python -m pytest benchmarks --benchmark-json=bench.json",
            "bench.json",
        ),
        (
            {
                "pyproject.toml": EXTRA.replace("hypothesis", "pytest-codspeed"),
                "tests/test_fast.py": USES,
            },
            "python -m pytest tests/test_fast.py --benchmark-json=bench.json",
            "bench.json",
        ),
        (
            {"asv_bench/asv.conf.json": '{"version": 1}'},
            "asv run --config asv_bench/asv.ci.json --machine ci --environment existing:python",
            "asv_bench/results",
        ),
        (
            {"bench/CMakeLists.txt": LINKS},
            "build/bench/sum_bench --benchmark_out=bench.json --benchmark_out_format=json",
            "bench.json",
        ),
    ],
)
def test_benchmarks_are_a_stage_in_a_comment(
    tmp_path: Path, capsys: Output, files: Mapping[str, str], command: str, results: str
) -> None:
    """Without its signs of comments it is valid, in place of the keys that it names."""
    assert len(written(tmp_path, {"pyproject.toml": PYPROJECT, **files}).stages) == 2
    assert "note: benchmarks: " in capsys.readouterr().out
    bench = benchmark_stage(tmp_path / "ci.yaml")
    assert command in bench.command
    assert bench.benchmarks == results


def benchmark_stage(path: Path) -> StageConfig:
    """The stage for benchmarks, once the comment is no comment any more."""
    text = path.read_text(encoding="utf-8")
    kept = [it for it in text.splitlines() if not it.startswith(("install:", "test:", "# Bench"))]
    at = kept.index("# stages:")
    lines = [*kept[:at], *(it.removeprefix("# ") for it in kept[at:])]
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_config(path).stages[-1]


ASV = """\
{
    // asv takes comments
    "version": 1,
    "project": "tiny",
    "repo": "https://tiny.invalid/tiny.git",
    "branches": ["main"],
    "environment_type": "conda",
    "matrix": {"req": {"numpy": ["1.2"]}}
}
"""


def test_asv_measures_the_sources_whatever_its_configuration_names(tmp_path: Path) -> None:
    """Another repository, a branch that a checked out commit lacks, other environments."""
    pytest.importorskip("asv")
    files = {
        "pyproject.toml": PYPROJECT,
        "asv_bench/asv.conf.json": ASV,
        "asv_bench/benchmarks/__init__.py": "",
        "asv_bench/benchmarks/fast.py": "def time_sum(): sum(range(100))",
    }
    written(tmp_path, files)
    bench = benchmark_stage(tmp_path / "ci.yaml")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(tmp_path), "PATH": path}
    run(shlex.split(bench.command), cwd=tmp_path, environment=environment)
    [measured] = (tmp_path / str(bench.benchmarks)).glob("ci/*-existing-*.json")
    assert "fast.time_sum" in json.loads(measured.read_text())["results"]


@pytest.mark.parametrize(
    "files",
    [
        {"tests/test_tiny.py": USES},  # another fixture may have this name
        {"benchmarks/run.py": "import timeit"},
        {"bench/CMakeLists.txt": "target_link_libraries(bench PRIVATE sum)"},
    ],
)
def test_other_files_are_no_benchmarks(
    tmp_path: Path, capsys: Output, files: Mapping[str, str]
) -> None:
    written(tmp_path, {"pyproject.toml": PYPROJECT, **files})
    assert "benchmarks" not in capsys.readouterr().out
    assert "stages" not in (tmp_path / "ci.yaml").read_text(encoding="utf-8")
