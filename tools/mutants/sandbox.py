"""A copy of the tree in which mutants are planted, built, installed and tested."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from ci.errors import ExitCode, UsageError
from ci.gates.rules import exit_code
from ci.plan import source
from ci.util.process import run
from codegen.inputs import SELECTION_VARIABLE
from tools.mutants.faults import PlantingError
from tools.mutants.plan import ROOT, Mutant
from tools.mutants.suite import OperatorSuite, SuiteOutcome

JOBS = str(len(os.sched_getaffinity(0)))
TIMEOUT_S = 900  # tests/ops/guards.py ends a test that hangs after 120 s


class UnchangedLibraryError(PlantingError):
    """The library that is built from a mutant is the same to the byte."""


class Sandbox:
    """A copy of the tree; the tree itself does not change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.package = folder / "site" / "infini" / "ops"
        self._saved = folder / "build"
        self._variables: Mapping[str, str] = {}
        self._clean = ""

    def prepare(self, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Copies the tree, builds it and installs the library without a fault.

        ``variables`` are added to the environment of every build.
        """
        self._variables = variables
        for path in source.files(ROOT):
            copy = self.tree / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy)
        self._configure("build")
        self._build()
        self._clean = self._digest()

    def build_as(self, name: str, options: Sequence[str], *, build: str) -> Path:
        """Builds the tree with other options of CMake; returns the folder of the package.

        Args:
            name: of the site folder, beside that of ``prepare``.
            build: the build's folder in the tree. That of ``prepare``, "build", keeps its objects.
        """
        package = self.folder / name / "infini" / "ops"
        self._configure(build, *options)
        self._build(build, package)
        return package

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Installs the library with a fault, and takes the fault out of the tree again.

        Raises:
            UnchangedLibraryError: a fault in its sources does not change the library.
            PlantingError: the tree does not have the fault.
            ProcessError: the mutant does not compile.
        """
        for path, original in mutant.originals.items():
            if (self.tree / path).read_text(encoding="utf-8") != original:
                raise PlantingError(
                    f"{path} in {self.tree} has changed since the fault was planned"
                )
        self._save_build()
        times = {path: (self.tree / path).stat().st_mtime_ns for path in mutant.files}
        try:
            self._write(mutant.files)
            self._build()
            self._check(mutant)
            yield
        finally:
            self._write(mutant.originals)
            for path, time in times.items():
                os.utime(self.tree / path, ns=(time, time))
            self._restore_build()

    @cached_property
    def suite(self) -> OperatorSuite:
        """The suite of the installed library."""
        site = environment_with(self.folder / "site")
        return OperatorSuite(
            tree=self.tree, results=self.folder / "results", environment=site, timeout_s=TIMEOUT_S
        )

    def test(self, *tests: str, report: str) -> SuiteOutcome:
        """Run tests; if a worker process dies, only its current test fails."""
        outcome = self.suite.run("-q", "-n", JOBS, *tests, report=report)
        passed = exit_code([outcome.result]) is ExitCode.PASSED
        is_conclusive = outcome.result.failures or outcome.ended_by_limit
        if not passed and not is_conclusive:
            reasons = "\n".join(evidence.text for evidence in outcome.result.verdict.evidence)
            raise PlantingError(f"the suite did not pass, and no test failed:\n{reasons}")
        return outcome

    def _save_build(self) -> None:
        if not self._saved.exists():
            shutil.copytree(self.tree / "build", self._saved, symlinks=True)

    def _restore_build(self) -> None:
        """Put back the objects without a fault: compiling them again would double the time."""
        shutil.rmtree(self.tree / "build")
        shutil.copytree(self._saved, self.tree / "build", symlinks=True)

    def _write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            (self.tree / path).write_text(text, encoding="utf-8")
            # Python keeps stale bytecode if the new file has the same length and the same second.
            if path.endswith(".py"):
                shutil.rmtree((self.tree / path).parent / "__pycache__", ignore_errors=True)
        shutil.rmtree(self.package / "__pycache__", ignore_errors=True)

    def _configure(self, build: str, *added: str) -> None:
        options = ("-DWITH_TORCH=ON", "-DAUTO_DETECT_DEVICES=OFF", "-DCMAKE_BUILD_TYPE=Release")
        python = f"-DPython_EXECUTABLE={sys.executable}"
        self._run("cmake", "-S", ".", "-B", build, "-G", "Ninja", *options, python, *added)

    def _build(self, build: str = "build", package: Path | None = None) -> None:
        package = package or self.package
        self._run("cmake", "--build", build, "-j", JOBS)
        shutil.copytree(self.tree / "src/infini/ops", package, dirs_exist_ok=True)
        self._run("cmake", "--install", build, "--prefix", str(package))

    def _check(self, mutant: Mutant) -> None:
        for path, text in mutant.files.items():
            if (self.tree / path).read_text(encoding="utf-8") != text:
                raise PlantingError(f"the build overwrote the fault in {path}")
        # Python of the suite and of the generator also does what the library does not show.
        in_library = [it for it in mutant.files if it.startswith("src/") or not it.endswith(".py")]
        if in_library and not self.library_differs():
            raise UnchangedLibraryError("the fault does not change the installed library")

    def library_differs(self) -> bool:
        """Whether the installed library is another one than that without a fault."""
        return self._digest() != self._clean

    def _digest(self) -> str:
        """Return one digest of all installed files."""
        digest = hashlib.sha256()
        for path in sorted(self.package.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(self.package).as_posix().encode())
                digest.update(path.read_bytes())
        return digest.hexdigest()

    def _run(self, *command: str) -> None:
        environment = {**environment_with(self.folder / "site"), **self._variables}
        run(command, cwd=self.tree, environment=environment, timeout_s=TIMEOUT_S)


@contextmanager
def work_folder(wanted: Path | None) -> Iterator[Path]:
    """Provide the given folder, which must be empty, or a temporary one that all users can read."""
    if wanted is None:
        with tempfile.TemporaryDirectory(prefix="infini-ops-") as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)
        return
    if wanted.exists() and any(wanted.iterdir()):
        raise UsageError(
            f"--work-dir {wanted} is not empty. Pass an empty folder, or omit --work-dir"
        )
    yield wanted.resolve()


def environment_with(site: Path) -> dict[str, str]:
    """Return an environment with the programs of this Python and the library in ``site``."""
    kept = {name: value for name, value in os.environ.items() if name != SELECTION_VARIABLE}
    programs = Path(sys.executable).parent
    return kept | {
        "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": str(site),
    }
