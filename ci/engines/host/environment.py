"""The virtual environment of the host engine: of which Python it is made, and what it sees.

On a vendor's machine, as in a vendor's image, torch is the vendor's own. The environment sees it,
and pip's constraints keep it: ``docker/vendor_packages.py`` does both for the recipe, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ci.engines.host.workfolder import CONSTRAINTS, MAKE_VENV, VENV_SETTINGS
from ci.model.plan import RESERVED_VARIABLES, HostPlan, RunPlan
from ci.plan.network import folder_word, pip_variables, with_folders
from ci.util import process
from ci.util.interpreters import (
    PATH_VARIABLES,
    VENDOR_PACKAGES,
    find_vendors,
    has_torch,
    locate,
)
from ci.util.invocation import NOX_VARIABLE
from ci.util.redaction import SECRET_NAME
from ci.util.text import first_line

ORIGIN = "# the packages of "  # begins the head of the constraints, which names the Python
TORCH = "torch=="
PIP_ERROR = "ERROR: "


# Variables of the caller that stages never get: they would bypass the virtual environment, skip
# assertions, compile each module again in each process, or refer to another run.
EXCLUDED_VARIABLES = RESERVED_VARIABLES | {
    *(*PATH_VARIABLES, "PYTHONOPTIMIZE", "PYTHONDONTWRITEBYTECODE", NOX_VARIABLE),
    # With the variables of a worker, syrupy reports nothing and passes.
    *("PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"),
}
# The variables of the caller that stages get, besides those of `pass_environment`: what shells,
# compilers, build tools, pytest and vendors' tools read. Any other variable may hold a secret.
PASSED_VARIABLES = re.compile(
    r"HOME|USER|LOGNAME|SHELL|TERM|COLORTERM|NO_COLOR|FORCE_COLOR|TMPDIR|TMP|TEMP|CI|TZ|LANG"
    r"|LANGUAGE|SOURCE_DATE_EPOCH|CC|CXX|CPP|FC|AR|NM|RANLIB|PATH"
    r"|(C|CPP|CXX|CUDA|F|LD|MAKE|ARCH)FLAGS|(C_INCLUDE_|CPLUS_INCLUDE_|LIBRARY_|C)PATH"
    r"|(LC|LD|XDG|PKG_CONFIG|INFINI|SKBUILD|CMAKE|SETUPTOOLS|CCACHE|PYTEST|COVERAGE)_\w+"
    r"|(TORCH|ATEN|TRITON|OMP|KMP|GOMP|MKL|DNNL|ONEDNN|OPENBLAS|NCCL|GLOO)_\w+"
    r"|(CUDA|NVCC|NVIDIA|COREX|MACA|NEUWARE|MLU|MUSA|ASCEND|HCCL)\w*|(NINJA|CARGO|RUST)\w+"
    r"|\w+_VISIBLE_DEVICES"
)


@dataclass(frozen=True, kw_only=True)
class BasePython:
    """The Python that an environment is made of; ``is_seen``: with its packages."""

    path: str
    is_seen: bool


@cache
def base_python(host: HostPlan) -> BasePython:
    """Return the named Python, else the first known one with its vendor's torch, else our own.

    Each call would start that Python, and a run has several.
    """
    path = host.interpreter and locate(host.interpreter)
    if host.sees_torch:
        path = path or find_vendors()
        return BasePython(path=path or host.python, is_seen=path is not None and has_torch(path))
    return BasePython(path=path or host.python, is_seen=False)


def creating_commands(host: HostPlan, base: BasePython, venv: Path) -> Iterator[list[str]]:
    """Yield the commands that make an environment, which has only pip of its own."""
    other = [] if base.path == host.python else ["--python", base.path]
    yield [host.python, *MAKE_VENV, str(venv), *other]
    if base.is_seen:
        yield [base.path, str(VENDOR_PACKAGES), "link", str(venv)]


def checking_command(venv: Path, constraints: Path) -> list[str]:
    """Return the command that fails if a package of the vendor was replaced or shadowed."""
    return [str(venv / "bin" / "python"), str(VENDOR_PACKAGES), "check", str(constraints)]


def host_settings(
    plan: RunPlan, constraints: Path | None, passed: Mapping[str, str]
) -> dict[str, str]:
    """Return ``passed`` with the network's and the plan's variables, and ``constraints``."""
    network = with_folders(plan.network.host_environment, passed)
    kept = {"PIP_CONSTRAINT": constraints.as_uri()} if constraints else {}  # pip splits at spaces
    return {**passed, **network, **kept, **plan.environment}


def environment_description(plan: RunPlan, passed: Mapping[str, str]) -> dict[str, object]:
    """Return the Python, the requirements and the variables of an environment."""
    base = base_python(plan.host)
    return {
        "python": base.path,
        "sees_packages": base.is_seen,
        "requirements": str(plan.host.requirements),
        "environment": host_settings(plan, None, dict(sorted(passed.items()))),
    }


def passed_variables(plan: RunPlan) -> dict[str, str]:
    """Return the caller's variables that the stages of ``plan`` get."""

    def is_passed(name: str) -> bool:
        if name in EXCLUDED_VARIABLES:
            return False
        if any(fnmatchcase(name, pattern) for pattern in plan.host.pass_environment):
            return True
        return bool(PASSED_VARIABLES.fullmatch(name)) and not SECRET_NAME.search(name)

    inherited = process.inherited_environment()
    passed = {name: value for name, value in inherited.items() if is_passed(name)}
    return {**pip_variables(inherited), **passed}


def read_constraints(base: BasePython, variables: Mapping[str, str]) -> str:
    """Return pip's constraints that keep the packages of a vendor's Python."""
    command = [base.path, str(VENDOR_PACKAGES), "constraints"]
    return process.run(command, environment=variables).stdout


def shadowed_packages(constraints: str, venv: Path) -> list[str]:
    """Return the pinned packages that an environment has itself, in place of the vendor's.

    Only names are read: the code under test may have put anything else there.
    """
    found = venv.glob("lib/python*/site-packages/*.dist-info")
    own = {_normal(folder.name.partition("-")[0]) for folder in found}
    pins = [line for line in constraints.splitlines() if "==" in line and line[0] != "#"]
    return [pin for pin in pins if _normal(pin.partition("==")[0]) in own]


def missing_requirement(plan: RunPlan, folder: Path, variables: Mapping[str, str]) -> str | None:
    """Return what pip says if ``folder`` alone lacks a requirement of the environment.

    pip itself answers, in an environment like that of a run.
    """
    base, requirements = base_python(plan.host), plan.host.requirements
    if not requirements.read_bytes().strip():
        return None
    settings = {"PIP_FIND_LINKS": folder_word(folder), "PIP_NO_INDEX": "1", **VENV_SETTINGS}
    with TemporaryDirectory(prefix="infini-ci-wheels-") as temporary:
        constraints, venv = Path(temporary, CONSTRAINTS), Path(temporary, "venv")
        constraints.write_text(read_constraints(base, variables) if base.is_seen else "")
        if base.is_seen:
            settings["PIP_CONSTRAINT"] = constraints.as_uri()
        variables = {**variables, **settings}
        for command in creating_commands(plan.host, base, venv):
            process.run(command, cwd=venv.parent, environment=variables)
        install = ["-m", "pip", "install", "--dry-run", "--quiet", "--requirement"]
        command = [str(venv / "bin" / "python"), *install, str(requirements)]
        answer = process.run(command, cwd=venv.parent, environment=variables, check=False)
    if answer.exit_code == 0:
        return None
    errors = [line for line in answer.stderr.splitlines() if line.startswith(PIP_ERROR)]
    return first_line(errors[-1].removeprefix(PIP_ERROR) if errors else answer.stderr)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def origin_note(constraints: str) -> str:
    """Return the note on the Python whose packages an environment sees, and on its torch."""
    head, *pins = constraints.splitlines() or [""]
    torch = next((pin.removeprefix(TORCH) for pin in pins if pin.startswith(TORCH)), "")
    python = head.removeprefix(ORIGIN).rpartition(", Python ")[0]
    return f"torch {torch}".strip() + f" is this machine's own, of {python}"
