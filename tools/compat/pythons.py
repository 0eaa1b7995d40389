"""Checks one Python: the library without torch, and with torch where a CPU wheel exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tools.compat.interpreters import Interpreter
from tools.compat.steps import (
    ROOT,
    Planned,
    Step,
    environment_steps,
    pip_install,
    project,
    requirements,
    run_step,
    run_steps,
)

TESTS = ROOT / "tests"
FREE_THREADED = "free-threaded: not supported, not checked"


@dataclass(frozen=True, kw_only=True)
class PythonOutcome:
    """The result of one Python; ``executable`` is None if it is missing."""

    python: str
    executable: Path | None = None
    steps: tuple[Step, ...] = ()
    note: str = ""

    def failed(self) -> list[Step]:
        return [step for step in self.steps if step.exit_code != 0]


def supported_versions() -> list[str]:
    """Return the versions that the classifiers in pyproject.toml list: "3.10"."""
    prefix = "Programming Language :: Python :: 3."
    names = [name for name in project()["project"]["classifiers"] if name.startswith(prefix)]
    return [name.rpartition(" ")[2] for name in names]


def check_python(
    interpreter: Interpreter, work_dir: Path, *, with_torch: bool, full: bool
) -> PythonOutcome:
    """Build, import and test the library without torch, then with torch if there is a wheel.

    Args:
        interpreter: one of 3.10 or later.
        work_dir: the folder of environments and builds, kept for the next run.
        with_torch: also check the library with torch, which takes minutes.
        full: run the whole operator suite with torch, not only its native part.
    """
    outcome = PythonOutcome(python=interpreter.version, executable=interpreter.executable)
    if interpreter.is_free_threaded:
        return replace(outcome, note=FREE_THREADED)
    # Two interpreters may have the same version.
    folder = work_dir / "-".join((interpreter.version, *interpreter.executable.parts[1:-2]))
    folder.mkdir(parents=True, exist_ok=True)
    steps = run_steps(_without_torch(interpreter, folder, work_dir / "build"), folder)
    outcome = replace(outcome, steps=steps)
    if outcome.failed():
        return replace(outcome, note=_remedy(interpreter))
    if not with_torch:
        return outcome
    torch = _cpu_wheel()
    # Search without a download: only CPU wheels have this local version.
    options = ("--dry-run", "--no-deps", "--only-binary=:all:")
    search = pip_install(folder / "venv/bin/python", *options, torch)
    found = run_step("wheel", search, {}, folder / "wheel.log")
    if found.exit_code != 0 and "No matching distribution found" in found.last_lines:
        return replace(outcome, note=f"no wheel of {torch}")
    if found.exit_code != 0:
        return replace(outcome, steps=(*steps, found))
    planned = _with_torch(torch, interpreter, folder, work_dir / "build-torch", full=full)
    return replace(outcome, steps=(*steps, *run_steps(planned, folder)), note=torch)


def _without_torch(interpreter: Interpreter, folder: Path, build: Path) -> Iterator[Planned]:
    python = folder / "venv/bin/python"
    # Newer Pythons warn of escapes and of constructs that were accepted before.
    cache = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    folders = ("codegen", "src/infini", "src/triton", "tests/native", "tests/ops")
    compile_all = ("-W", "error", "-m", "compileall", "-q", "-f", *folders)
    yield "syntax", (interpreter.executable, *compile_all), cache
    yield from environment_steps("environment", interpreter.executable, folder / "venv")
    yield "requirements", pip_install(python, "cmake", "ninja", *requirements()), {}
    yield "built", _build(python, build, "WITH_TORCH=OFF"), {}
    yield "imported", (python, "-W", "error", "-c", "import infini.ops"), {}
    yield "native", (*_pytest(python), TESTS / "native"), {}


def _with_torch(
    torch: str, interpreter: Interpreter, folder: Path, build: Path, *, full: bool
) -> Iterator[Planned]:
    venv = folder / "venv-torch"
    python = venv / "bin/python"
    yield from environment_steps("environment-torch", interpreter.executable, venv)
    everything = (torch, "cmake", "ninja", *requirements())
    yield "requirements-torch", pip_install(python, *everything), {}
    yield "built-torch", _build(python, build, "WITH_TORCH=ON"), {}
    yield "native-torch", (*_pytest(python), TESTS / "native"), {}
    yield "smoke-torch", (*_pytest(python), ROOT / "tools/compat/test_smoke.py"), {}
    suite = TESTS / "ops" if full else TESTS / "ops/test_native_ops.py"
    yield "suite-torch", (*_pytest(python), "--numprocesses=auto", suite), {}


def _build(python: Path, build: Path, option: str) -> tuple[str | Path, ...]:
    # One build folder for all Pythons: only sources that include Python.h are compiled for each.
    # The cached results of CMake's searches belong to another Python.
    (build / "CMakeCache.txt").unlink(missing_ok=True)
    defines = (option, "AUTO_DETECT_DEVICES=OFF", "AUTO_DETECT_BACKENDS=OFF")
    return pip_install(
        python,
        *(ROOT, "--no-build-isolation", "--no-deps", f"--config-settings=build-dir={build}"),
        *(f"--config-settings=cmake.define.{define}" for define in defines),
    )


def _pytest(python: Path) -> tuple[str | Path, ...]:
    return python, "-m", "pytest", "-q", "-p", "no:cacheprovider"


def _cpu_wheel() -> str:
    """Return the CPU build of the torch that this project pins: "torch==2.13.0+cpu"."""
    group = project()["dependency-groups"]["torch"]
    [torch] = [name for name in group if name.startswith("torch==")]
    return f"{torch}+cpu"


def _remedy(interpreter: Interpreter) -> str:
    if interpreter.header.exists():
        return ""
    python = f"python{interpreter.version.rpartition('.')[0]}"
    return f"{interpreter.header} is missing; run: apt install {python}-dev {python}-venv"
