"""A copy of the tree in which mutants are planted, built, installed and tested."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from ci.errors import ExitCode, UsageError
from ci.model.results import exit_code
from ci.util.process import run
from codegen.inputs import SELECTION_VARIABLE
from tests.mutants.faults import PlantingError
from tests.mutants.plan import ROOT, Mutant
from tests.mutants.suite import OperatorSuite, SuiteOutcome

# What the build and the operator suite need.
PARTS = ("CMakeLists.txt", "codegen", "examples", "pyproject.toml", "src", "tests/ops")
SUITE = "tests/ops"
JOBS = str(os.cpu_count() or 1)
TIMEOUT_S = 900  # tests/ops/guards.py ends a test that hangs after 120 s


class Sandbox:
    """A copy of the tree; the tree itself does not change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.package = folder / "site" / "infini" / "ops"
        self._variables: Mapping[str, str] = {}
        self._clean = ""

    def prepare(self, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """Copies the tree, builds it and installs the library without a fault.

        ``variables`` are added to the environment of every build.
        """
        self._variables = variables
        for part in PARTS:
            source, copy = ROOT / part, self.tree / part
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy)
        options = ("-DWITH_TORCH=ON", "-DAUTO_DETECT_DEVICES=OFF", "-DCMAKE_BUILD_TYPE=Release")
        python = f"-DPython_EXECUTABLE={sys.executable}"
        self._run("cmake", "-S", ".", "-B", "build", "-G", "Ninja", *options, python)
        shutil.copytree(self.tree / "src" / "infini" / "ops", self.package)
        self._build()
        self._clean = self._digest()

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """Installs the library with a fault, and takes the fault out of the tree again.

        Raises:
            PlantingError: the installed library does not have the fault.
            ProcessError: the mutant does not compile.
        """
        for path, original in mutant.originals.items():
            if (self.tree / path).read_text(encoding="utf-8") != original:
                raise PlantingError(
                    f"{path} in {self.tree} has changed since the fault was planned"
                )
        try:
            self._write(mutant.files)
            self._build()
            self._check(mutant)
            yield
        finally:
            self._write(mutant.originals)

    @cached_property
    def suite(self) -> OperatorSuite:
        """The suite of the installed library."""
        site = environment_with(self.folder / "site")
        return OperatorSuite(
            tree=self.tree, results=self.folder / "results", environment=site, timeout_s=TIMEOUT_S
        )

    def test(self, *tests: str, report: str) -> SuiteOutcome:
        """Run tests; if a worker process dies, only its current test fails."""
        outcome = self.suite.run("-q", "-n", JOBS, "-p", "no:cacheprovider", *tests, report=report)
        passed = exit_code([outcome.result]) is ExitCode.PASSED
        if not passed and not outcome.result.failures:
            reasons = "\n".join(evidence.text for evidence in outcome.result.verdict.evidence)
            raise PlantingError(f"the suite did not pass, and no test failed:\n{reasons}")
        return outcome

    def _write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            (self.tree / path).write_text(text, encoding="utf-8")
        # Python keeps stale bytecode if the new file has the same length and the same second.
        for compiled in [*self.folder.rglob("__pycache__")]:
            shutil.rmtree(compiled)

    def _build(self) -> None:
        self._run("cmake", "--build", "build", "-j", JOBS)
        self._run("cmake", "--install", "build", "--prefix", str(self.package))

    def _check(self, mutant: Mutant) -> None:
        for path, text in mutant.files.items():
            if (self.tree / path).read_text(encoding="utf-8") != text:
                raise PlantingError(f"the build overwrote the fault in {path}")
        if self._digest() == self._clean:
            raise PlantingError("the fault does not change the installed library")

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


def subject_of(test: str) -> str | None:
    """The overload that a test is about: "abs.out" of ``test_overload[abs.out-float32-…]``."""
    match = re.search(r"\[([\w.]+)[-\]]", test)
    return match[1] if match else None


def stages(
    mutant: Mutant, tests: frozenset[str], overloads: frozenset[str]
) -> list[tuple[str, ...]]:
    """Return the stages to run until a test fails: the overload's tests, general ones, all."""
    of_overloads = {test for test in tests if subject_of(test) in overloads}
    own = {test for test in of_overloads if subject_of(test) == mutant.site.subject}
    lists = {_file_of(test) for test in of_overloads}
    general = {_file_of(test) for test in tests} - lists
    return [tuple(sorted(stage)) for stage in (own, general, {SUITE}) if stage]


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def failures_about(mutant: Mutant, failures: Mapping[str, str]) -> list[str]:
    """Return the failed tests that name the mutated operator, its own tests first.

    ``failures`` are the reports of all failed tests.
    """
    names = [re.escape(name) for name in mutant.names]
    mention = re.compile(rf"(?<![\w.])(?:{'|'.join(names)})(?![\w.])") if names else re.compile("")
    failed = [test for test, text in failures.items() if mention.search(test + text)]
    return sorted(failed, key=lambda test: (subject_of(test) != mutant.site.subject, test))
