"""What a machine lacks: found all at once, before anything is downloaded."""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from ci.engines.checks import (
    Finding,
    Severity,
    check_folder,
    install_line,
    problem,
    require,
    warning,
)
from ci.engines.host import doctor, prerequisites
from ci.engines.host.engine import HostEngine
from ci.engines.host.environment import BasePython
from ci.errors import ExitCode, PrerequisiteError
from ci.gates.rules import exit_code
from ci.model.verdicts import Harness, Product
from ci.upkeep.doctor.prerequisites import check_first_use, check_git, docker_answers
from ci.util import interpreters
from ci.util.invocation import REPOSITORY
from tests.ci import made_plans
from tests.ci.workplace import Workplace, new_workplace

NOXFILE = REPOSITORY / "noxfile.py"
OLD_COMPILER = """\
#!/bin/sh
for word; do [ "$word" != -std=c++17 ] || old=1; done
[ -z "$old" ] || { echo "error: unrecognized command line option '-std=c++17'" >&2; exit 1; }
"""
COMPILER = """\
#!/bin/sh
for word; do out=$word; done
echo "$*" >> "$(dirname "$0")/asked"
: > "$out"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but a package manager: what a minimal Debian has."""
    folder = tmp_path / "bin"
    folder.mkdir()
    add(folder, "apt-get")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def add(folder: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def link(folder: Path, *names: str) -> None:
    for name in names:
        found = shutil.which(name, path=os.defpath) or shutil.which(name, path="/usr/bin:/bin")
        assert found, f"this machine has no {name}"
        (folder / name).symlink_to(found)


# Git and folders


def test_git_is_needed_for_a_repository_alone(tmp_path: Path, programs: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    assert check_git(source).level is Severity.WARNING
    (source / ".git").mkdir()
    missing = check_git(source)
    assert (missing.level, missing.package) == (Severity.PROBLEM, "git")
    link(programs, "git")
    broken = check_git(source)  # git does not take it for a repository
    assert (broken.level, broken.package) == (Severity.PROBLEM, None)
    assert "not a git repository" in broken.found
    subprocess.run(["git", "init", "--quiet"], cwd=source, check=True)
    assert check_git(source).level is Severity.OK


def test_folders(tmp_path: Path) -> None:
    judge = partial(check_folder, "results", remedy="Name another.")
    assert judge(tmp_path / "not" / "yet").found.startswith(f"{tmp_path}/not/yet: ")
    assert not (tmp_path / "not").exists()
    assert judge(tmp_path, least=10**18).level is Severity.PROBLEM
    unwritable = judge(Path("/proc"))  # by no user, root included
    assert unwritable.level is Severity.PROBLEM
    assert unwritable.found.startswith("/proc cannot be written to: ")
    (tmp_path / "file").touch()
    assert judge(tmp_path / "file" / "results").configuration


def test_a_temporary_folder_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = prerequisites.check_temporary_folder(least=10**18)
    assert (found.level, found.expected) == (Severity.PROBLEM, "at least 1000000000.0 GB")
    assert found.found.startswith(f"{tmp_path}: ")
    assert prerequisites.check_temporary_folder(least=0).level is not Severity.PROBLEM


# Pythons

BROKEN = "#!/bin/sh\necho cannot load libpython >&2\nexit 127\n"
FACTS = '{"version": [3, %d, 10], "include": "%s"}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "does not exist"),
        ("", "is not a program"),
        ("#!/bin/sh\n", "is not a working Python: it prints no version"),
        (BROKEN, "is not a working Python: cannot load libpython"),
        ("no program\n", "cannot be run: Exec format error"),
        (f"#!/bin/sh\necho '{FACTS % (9, '')}'\n", "is Python 3.9.10, expected 3.10 or newer"),
    ],
)
def test_a_python_that_cannot_be_used(tmp_path: Path, text: str | None, reason: str) -> None:
    python = tmp_path / "python"
    if text is not None:
        python.write_text(text)
        python.chmod(0o755 if text else 0o644)
    found = prerequisites.check_python(str(python))
    assert (found.level, found.found) == (Severity.PROBLEM, f"{python} {reason}")
    assert found.configuration


@pytest.mark.usefixtures("programs")
def test_a_python_that_is_not_on_path() -> None:
    assert prerequisites.check_python("python3.12").found == "python3.12 is not on PATH"


def test_the_headers_are_those_of_the_chosen_python(tmp_path: Path, programs: Path) -> None:
    facts = FACTS % (12, tmp_path / "include")
    add(programs, "python3.12", f"#!/bin/sh\necho '{facts}'\n")
    chosen = interpreters.read_interpreter(interpreters.locate("python3.12"))
    assert isinstance(chosen, interpreters.Interpreter)
    assert str(chosen) == f"Python 3.12.10 ({programs}/python3.12)"
    (tmp_path / "CMakeLists.txt").touch()
    found = prerequisites.check_host_engine(tmp_path, os.environ, pythons=[chosen])
    headers = next(each for each in found if each.subject == "Python headers")
    assert headers.found == f"{tmp_path}/include/Python.h does not exist"
    assert headers.expected == f"the headers of {chosen}"


# Compilers


@pytest.mark.parametrize(
    ("program", "level", "found"),
    [
        ("echo 2.9.0+acme", Severity.OK, "torch 2.9.0+acme of {}"),
        (
            "echo Traceback >&2; echo 'ImportError: libacme.so' >&2; exit 1",
            Severity.PROBLEM,
            "that of {} cannot be imported: ImportError: libacme.so",
        ),
        ("exit 3", Severity.PROBLEM, "that of {} cannot be imported: exit code 3"),
    ],
)
def test_a_vendors_torch_is_imported(
    program: str, level: Severity, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, "python3", f"#!/bin/sh\n{program}\n")
    python = str(tmp_path / "python3")
    base = BasePython(path=python, is_seen=True)
    monkeypatch.setattr(doctor, "base_python", lambda _: base)
    finding = doctor._torch_finding(made_plans.plan())
    assert (finding.level, finding.found) == (level, found.format(python))


def test_a_torch_that_takes_long_to_import_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(tmp_path, "python3", "#!/bin/sh\nexec sleep 60\n")
    base = BasePython(path=str(tmp_path / "python3"), is_seen=True)
    monkeypatch.setattr(doctor, "base_python", lambda _: base)
    monkeypatch.setattr(interpreters, "IMPORT_S", 0.1)
    finding = doctor._torch_finding(made_plans.plan())
    assert finding.level is Severity.UNKNOWN
    assert "exceeded its time limit of 0.1 s" in finding.found


def compilers(source: Path, *environs: Mapping[str, str]) -> list[Finding]:
    """The findings about compilers of platforms with these variables."""
    variables = [{**os.environ, **environ} for environ in environs]
    findings = prerequisites.check_host_engine(source, *variables)
    return [found for found in findings if found.subject == "C++ compiler"]


@pytest.mark.usefixtures("programs")
def test_no_compiler() -> None:
    found = prerequisites.check_compiler(os.environ)
    assert found.found == "none of c++, CC, g++, clang++ is on PATH"
    assert (found.level, found.package) == (Severity.PROBLEM, "compiler")
    assert (found.remedy or "").endswith("--no-install-recommends g++") or os.geteuid()


def test_a_compiler_that_is_too_old(programs: Path) -> None:
    add(programs, "c++", OLD_COMPILER)
    found = prerequisites.check_compiler(os.environ)
    assert (found.level, found.package) == (Severity.PROBLEM, None)
    assert found.found == (
        f"{programs}/c++ cannot build a C++17 program: error: unrecognized command line"
        " option '-std=c++17'"
    )


def test_a_compiler_that_is_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link(programs, "dirname")
    add(programs, "c++", OLD_COMPILER)
    add(programs, "my-c++", COMPILER)
    monkeypatch.setenv("CXX", "my-c++ -m64")
    monkeypatch.setenv("CXXFLAGS", "-O0")
    assert prerequisites.check_compiler(os.environ).found == "CXX=my-c++ -m64 builds C++17"
    asked = (programs / "asked").read_text()
    assert asked == "-m64 -O0 -std=c++17 program.cc -o program\n"
    monkeypatch.setenv("CXX", "none")
    assert prerequisites.check_compiler(os.environ).found == "CXX names 'none', which was not found"
    chosen = prerequisites.check_compiler(
        {**os.environ, "CMAKE_ARGS": "-DCMAKE_CXX_COMPILER=/opt/c++"}
    )
    assert chosen.found == "the one that CMAKE_ARGS chooses, not tried"


def test_platforms_with_one_compiler_compile_once(tmp_path: Path, programs: Path) -> None:
    link(programs, "dirname")
    for name in ("c++", "other-c++"):
        add(programs, name, COMPILER)
    platforms = [
        {"INFINI_CI_PLATFORM": name, "SKBUILD_CMAKE_DEFINE": f"WITH_{name.upper()}=ON"}
        for name in ("cpu", "nvidia", "ascend")
    ]
    others = [{"CXX": "other-c++"}, {"CXXFLAGS": "-O1"}, {"CPATH": "/opt/include"}]

    def compilations(*environs: Mapping[str, str]) -> int:
        (programs / "asked").write_text("")
        assert {found.level for found in compilers(tmp_path, *environs)} == {Severity.OK}
        return len((programs / "asked").read_text().splitlines())

    assert compilations(*platforms) == 0  # the project compiles nothing
    (tmp_path / "CMakeLists.txt").touch()
    assert compilations(*platforms) == 1
    assert compilations(*platforms, *others) == 4
    _, chosen = compilers(tmp_path, *platforms, {"CMAKE_ARGS": "-DCMAKE_CXX_COMPILER=/opt/c++"})
    assert chosen.found == "the one that CMAKE_ARGS chooses, not tried"


def test_the_compiler_of_this_machine() -> None:
    if not any(map(shutil.which, prerequisites.COMPILERS)):
        pytest.skip("this machine has no C++ compiler")
    assert prerequisites.check_compiler(os.environ).level is Severity.OK


def test_what_compiles(tmp_path: Path) -> None:
    def wrote(name: str, text: str = "") -> bool:
        path = tmp_path / name
        path.write_text(text)
        answer = prerequisites.compiles_cpp(tmp_path)
        path.unlink()
        return answer

    assert not prerequisites.compiles_cpp(tmp_path)
    assert wrote("CMakeLists.txt")
    assert wrote("setup.py", "setup(ext_modules=[Extension('a', ['a.c'])])")
    assert wrote("pyproject.toml", '[build-system]\nrequires = ["scikit-build-core>=0.11"]\n')
    assert not wrote("setup.py", "setup()")
    assert not wrote("pyproject.toml", '[build-system]\nrequires = ["flit_core"]\n')
    assert not wrote("pyproject.toml", "no TOML")


@pytest.mark.usefixtures("programs")
def test_a_project_that_compiles_nothing_needs_no_compiler(tmp_path: Path) -> None:
    assert [found.level for found in compilers(tmp_path, {})] == [Severity.WARNING]
    (tmp_path / "CMakeLists.txt").touch()
    assert [found.level for found in compilers(tmp_path, {})] == [Severity.PROBLEM]


# One line that installs all of it


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt-get", "apt-get update && apt-get install --yes --no-install-recommends git g++"),
        ("dnf", "dnf install -y git gcc-c++"),
        ("yum", "yum install -y git gcc-c++"),
        ("apk", "Install these packages (Debian's names): git, g++."),
    ],
)
@pytest.mark.parametrize("user", ["root", "with sudo", "without"])
def test_the_line_to_paste(
    manager: str, line: str, user: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (programs / "apt-get").unlink()
    add(programs, manager)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if user == "root" else 1000)
    if user == "with sudo":
        add(programs, "sudo")
        line = line.replace("apt-get i", "sudo apt-get i").replace("apt-get u", "sudo apt-get u")
        line = line.replace("dnf", "sudo dnf").replace("yum", "sudo yum")
    if user == "without" and manager != "apk":
        line = f"su -c '{line}'"
    (programs / ".git").mkdir()
    git = check_git(programs)
    assert install_line([git, prerequisites.check_compiler(os.environ), git]) == line


# Whether an engine answers, as far as the standard library can tell


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield {"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "DOCKER_CONFIG": str(tmp_path)}


def test_engines_that_answer(listening: dict[str, str], tmp_path: Path) -> None:
    assert docker_answers(listening)
    assert not docker_answers({**listening, "DOCKER_HOST": "tcp://127.0.0.1:1"})
    assert docker_answers({**listening, "DOCKER_HOST": "ssh://somewhere"})  # checked by `run`
    assert docker_answers({"DOCKER_CONTEXT": "far", "DOCKER_CONFIG": str(tmp_path)})
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    assert docker_answers({"DOCKER_CONFIG": str(tmp_path)})


# noxfile.py, before it installs nox


def run_program(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **environ}
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )


def nox(*words: str, python: str = sys.executable, **environ: str) -> tuple[int, str]:
    """``noxfile.py`` where nox is not installed (``-S``) and no engine answers."""
    variables = {"DOCKER_HOST": "tcp://127.0.0.1:1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = run_program(python, "-S", str(NOXFILE), *words, **variables, **environ)
    return done.returncode, done.stderr


@pytest.mark.parametrize("session", ["build-cpu", "release"])
@pytest.mark.usefixtures("programs")
def test_noxfile_names_everything_at_once(session: str, tmp_path: Path) -> None:
    in_git = (REPOSITORY / ".git").exists()
    code, said = nox("-s", session, "--", f"--results={tmp_path}")
    assert code == ExitCode.INFRASTRUCTURE
    assert said.startswith("noxfile.py: this machine lacks prerequisites of these sessions: ")
    assert ("  git: git was not found" in said) is in_git
    assert "  C++ compiler: none of " in said
    *_, line = said.splitlines()
    assert ("apt-get install --yes --no-install-recommends git " in line) is in_git
    assert "g++" in line
    assert "Traceback" not in said


def test_noxfile_needs_no_compiler_for_an_engine(programs: Path, tmp_path: Path) -> None:
    (programs / "CMakeLists.txt").touch()
    words = ("-s", "build-cpu", "--", "--engine", "docker", f"--source={programs}")
    first = partial(check_first_use, tmp_path, words)
    assert "C++ compiler" not in {found.subject for found in first({})}
    host = [word.replace("docker", "host") for word in words]
    findings = list(check_first_use(tmp_path, host, {}))
    assert "C++ compiler" in {found.subject for found in findings}
    elsewhere = ("-s", "release", "--", "--config", str(tmp_path / "other" / "ci.yaml"))
    subjects = [found.subject for found in check_first_use(REPOSITORY, elsewhere, {})]
    assert subjects == ["checkout", "results", "Python venv"]
    # A site's file is YAML: `run` reads it.
    site = {"INFINI_CI_SITE": "site.yaml", "DOCKER_HOST": "tcp://127.0.0.1:1"}
    subjects = [found.subject for found in check_first_use(tmp_path, words[:2], site)]
    assert subjects == ["checkout", "results", "git", "Python venv"]
    assert [found.subject for found in check_first_use(tmp_path, ["-s", "lint"], {})] == [
        "checkout",
        "Python venv",
    ]


def test_noxfile_can_be_read_by_old_pythons() -> None:
    tree = ast.parse(NOXFILE.read_text(), feature_version=(3, 6))
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert "__future__" not in imported  # of 3.7, and a SyntaxError in 3.6


def old_pythons() -> list[str]:
    """Interpreters before 3.11 that start, which a shim of pyenv's on PATH may not."""
    found = [shutil.which(f"python3.{minor}") for minor in range(6, 11)]
    pyenv = Path.home() / ".pyenv" / "versions"
    found += [str(path) for minor in range(6, 11) for path in pyenv.glob(f"3.{minor}.*/bin/python")]
    return [path for path in found if path and subprocess.run([path, "-c", ""]).returncode == 0]


def test_an_old_python_gets_the_required_version() -> None:
    pythons = old_pythons()
    if not pythons:
        pytest.skip("this machine has no Python before 3.11")
    for python in pythons:
        code, said = nox("-s", "build-cpu", python=python)
        assert code == ExitCode.INFRASTRUCTURE
        assert f"({python}), expected 3.11 or newer\n" in said
        assert "python3.12 noxfile.py -s build-cpu" in said


# Runs and doctor


CI = (sys.executable, "-m", "ci")
CONFIG = "cpu: {}\n  moore: {simulated: true}\n  metax: {simulated: true}"
SITE = """\
engines:
  box: {docker_host: "tcp://127.0.0.1:1"}
platforms:
  cpu: {engine: box}
"""


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = new_workplace(tmp_path)
    work.write("ci.yaml", (tmp_path / "source" / "ci.yaml").read_text().replace("cpu: {}", CONFIG))
    work.write("ci.site.yaml", SITE)
    work.write("CMakeLists.txt", "")
    return work


def test_what_a_platform_lacks_is_in_its_row_and_stops_no_other(
    work: Workplace, programs: Path
) -> None:
    add(programs, "python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    result, run = work.run(
        platforms=("cpu", "moore", "metax"),
        connect=lambda plan: work.engine if plan.name == "box" else HostEngine(),
    )
    cpu, moore, metax = result.platforms
    assert cpu.verdict.product is Product.PASSED
    for row in (moore, metax):
        assert row.verdict.product is Product.NOT_RUN
        assert row.verdict.harness is Harness.INFRASTRUCTURE
        [evidence] = row.verdict.evidence
        assert "\n  C++ compiler: none of c++, CC, g++, clang++ is on PATH" in evidence.text
        [note] = row.notes
        assert note.startswith("not run: this machine lacks prerequisites of the host engine: ")
        assert "C++ compiler" in note
        assert "\n" not in note
        assert "apt-get" not in evidence.text
    assert exit_code(result.platforms) is ExitCode.INFRASTRUCTURE
    [line] = run.install
    assert "g++" in line
    assert line not in work.output()  # once, below the table


def make_repository(work: Workplace) -> None:
    """Without git: this is what git itself takes for a repository."""
    own = work.folder / "source" / ".git"
    for name in ("objects", "refs"):
        (own / name).mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.usefixtures("programs")
def test_run_without_git_names_everything_at_once(work: Workplace) -> None:
    make_repository(work)
    words = ("run", "cpu", "--engine=host", f"--source={work.folder / 'source'}")
    done = run_program(*CI, *words, f"--results={work.results}")
    assert done.returncode == ExitCode.INFRASTRUCTURE
    assert "\n  git: git was not found" in done.stderr
    assert "\n  C++ compiler: none of " in done.stderr
    assert done.stderr.count("apt-get install ") == 1
    assert not work.results.exists()


@pytest.mark.usefixtures("programs")
def test_doctor_finds_the_same(work: Workplace) -> None:
    make_repository(work)
    config = work.folder / "source" / "ci.yaml"
    words = ("doctor", "cpu", "--engine=host", f"--config={config}", "--json")
    index = work.folder.as_uri()
    done = run_program(
        *CI, *words, PIP_INDEX_URL=index, PIP_EXTRA_INDEX_URL="", PIP_CONFIG_FILE="/dev/null"
    )
    document = json.loads(done.stdout)
    assert done.returncode == document["exit_code"] == ExitCode.INFRASTRUCTURE
    packages = {found["subject"]: found["package"] for found in document["findings"]}
    assert (packages["git"], packages["C++ compiler"]) == ("git", "compiler")
    assert "git g++" in document["install"]


def test_nothing_is_refused_for_a_warning() -> None:
    with pytest.raises(
        PrerequisiteError, match=r"^this machine lacks prerequisites of a run: git\n  git: x"
    ):
        require("a run", [problem("git", "x", remedy=None)])
    require("a run", [warning("git", "x", expected="", remedy="")])
