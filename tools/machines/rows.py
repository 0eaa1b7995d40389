"""The machines that this machine can imitate, each a row of the table.

A row gives the prefix, the environment and the options of the command that runs the suite, or the
reason why this machine cannot imitate the other one. A row of a toolchain builds the library first.
"""

from __future__ import annotations

import os
import platform
import pwd
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ci.util.process import ProcessError, run
from tools.mutants.stages import SUITE

HERE = Path(__file__).resolve().parent
USER = "nobody"  # codespell:ignore nobody
SHARED_MEMORY = "512m"
TURKISH = "tr_TR"
SEED = 1
# The instruction sets of oneDNN (tests/ops/processor.py) and of ATen to try, the smallest first.
# Only Intel's processors have AVX512_CORE_FP16 and AMX.
ONEDNN = ("SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_FP16", "AVX512_CORE_AMX")
ATEN = ("default", "avx2", "avx512")
KERNEL_ISAS = ("baseline", "avx2", "avx512")  # of src/cpu/isa.h
CORES = (1, 2, 4)
# AVX2 and SSE4.2, by qemu. qemu 7.2 lacks AVX-512, and gives later models AVX2 only.
EMULATED = ("Haswell", "Nehalem")
# Name, compiler and added options of each toolchain that compiles everything again.
TOOLCHAINS = (
    ("built by Clang with libstdc++", "clang++", "-stdlib=libstdc++"),
    ("built with -O0", "c++", "-O0"),
    ("built with -O2 -flto", "c++", "-O2 -flto"),
    ("built with -D_GLIBCXX_ASSERTIONS", "c++", "-D_GLIBCXX_ASSERTIONS"),
)
STATIC = "-static-libstdc++ -static-libgcc"

# Tests, as arguments of pytest. Those that depend on the processor: oneDNN computes products and
# convolutions, the kernels of src/cpu choose their own instruction set, and test_processor tests
# the detection itself.
PROCESSOR = "test_native_ops or test_processor or test_torch_ops and (mm or conv or linear)"
FAST = ("-k", PROCESSOR, SUITE)
# Those that depend on the compiler: messages with numbers, exceptions of torch and of the library,
# symbols, programs, and the kernels.
COMPILER = "test_api or test_boundary or test_cpp or test_native or test_signatures or test_symbols"
BUILT = ("-k", COMPILER, SUITE)
# A few of them. To name the files, and to start one worker, takes half as long.
MESSAGES = (
    *(f"{SUITE}/{name}.py" for name in ("test_boundary_errors", "test_signatures", "test_symbols")),
    *("-k", "mm or add or test_signatures or test_symbols", "-n", "1"),
)

# For a Python that starts outside of this virtual environment.
PACKAGES = {"PYTHONPATH": sysconfig.get_path("purelib")}


class Build(Protocol):
    def __call__(self, name: str, options: Sequence[str], *, build: str) -> Path: ...


class NotAvailableError(Exception):
    """This machine cannot imitate the other one; the message has the reason."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The folders of a run, and the processor without limits."""

    folder: Path
    """Holds logs and the files of rows; may be removed after the run."""
    site: Path
    """The installed library."""
    processor: Mapping[str, Any]
    """The facts that the suite records without limits: ``torch``, ``onednn``, ``features``."""
    build: Build
    """Builds the library once more: ``Sandbox.build_as``."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How to run the suite as on one machine."""

    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    """Options of pytest."""
    python: str = sys.executable
    processor: Mapping[str, str] = field(default_factory=dict)
    """The facts that the suite must then record about the processor."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One machine; ``make`` raises ``NotAvailableError``."""

    name: str
    make: Callable[[RunContext], Machine]
    fast: bool = False
    """Whether it is in the fast selection, which checks every change."""
    tests: tuple[str, ...] = (SUITE,)
    """Arguments of pytest: the tests that run."""
    fast_tests: tuple[str, ...] = FAST
    """The same in the fast selection."""
    alone: bool = False
    """Whether a few tests run, each in a process of its own."""


def rows() -> Iterator[Row]:
    """Yield all machines, this one first."""
    yield Row(name="as it is", make=lambda _: Machine(), fast=True)
    for isa in ONEDNN:
        fast = isa in ("SSE41", "AVX512_CORE")
        yield _limit_by("ONEDNN_MAX_CPU_ISA", isa, _has_onednn, fast=fast, recorded="onednn")
    for capability in ATEN:
        fast = capability == "default"
        yield _limit_by("ATEN_CPU_CAPABILITY", capability, _has_aten, fast=fast, recorded="torch")
    for isa in KERNEL_ISAS:
        yield _limit_by("INFINI_OPS_CPU_ISA", isa, _has_kernel_isa, fast=isa == "baseline")
    for cores in CORES:
        yield Row(name=_format_cores(cores), make=_on_cores(cores), fast=cores == 1)
    one_thread = Machine(environment={"OMP_NUM_THREADS": "1"})
    yield Row(name="OMP_NUM_THREADS=1", make=lambda _: one_thread)
    yield Row(name="an ordinary user", make=_ordinary_user, fast=True)
    read_only = "read-only installation"
    yield Row(name=read_only, make=lambda place: _change_mounts("--read-only", str(place.site)))
    little = f"{SHARED_MEMORY} of shared memory"
    yield Row(name=little, make=lambda _: _change_mounts("--shared-memory", SHARED_MEMORY))
    yield Row(name="Turkish locale", make=_turkish, fast=True)
    yield Row(name="random order", make=_random_order)
    for model in EMULATED:
        yield Row(name=f"emulated {model}", make=_emulate(model), tests=FAST)
    name = "built with static libstdc++ and libgcc"
    yield Row(name=name, make=_link_statically, fast=True, tests=BUILT, fast_tests=MESSAGES)
    for name, compiler, options in TOOLCHAINS:
        make = _compile_with(compiler, options)
        yield Row(name=name, make=make, tests=BUILT, fast_tests=MESSAGES)
    yield Row(name="one test alone", make=lambda _: Machine(), alone=True)


def _format_cores(cores: int) -> str:
    return f"{cores} core{'s' if cores > 1 else ''}"


def _limit_by(
    variable: str,
    value: str,
    available: Callable[[str, RunContext], bool],
    *,
    fast: bool,
    recorded: str | None = None,
) -> Row:
    """Return the row of a variable; ``recorded`` is the fact of the processor that it limits."""

    def make(place: RunContext) -> Machine:
        if not available(value, place):
            raise NotAvailableError(f"this processor has less than {value}")
        limited = {recorded: value.upper()} if recorded else {}
        return Machine(environment={variable: value}, processor=limited)

    return Row(name=f"{variable}={value}", make=make, fast=fast)


def _has_onednn(isa: str, place: RunContext) -> bool:
    return isa == place.processor["onednn"] or f"onednn_above_{isa.lower()}" in _features(place)


def _has_aten(capability: str, place: RunContext) -> bool:
    has = place.processor["torch"].lower()
    return has in ATEN and ATEN.index(capability) <= ATEN.index(has)  # others: not x86


def _has_kernel_isa(isa: str, place: RunContext) -> bool:
    needs = {"baseline": "", "avx2": "avx2", "avx512": "avx512f avx512bw avx512dq avx512vl"}
    return _features(place).issuperset(needs[isa].split())


def _features(place: RunContext) -> set[str]:
    return set(place.processor["features"])


def _on_cores(count: int) -> Callable[[RunContext], Machine]:
    def make(_: RunContext) -> Machine:
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < count:
            raise NotAvailableError(f"this machine has {_format_cores(len(cores))}")
        chosen = ",".join(map(str, cores[:count]))
        return Machine(prefix=("taskset", "--cpu-list", chosen), options=("-n", str(count)))

    return make


def _ordinary_user(place: RunContext) -> Machine:
    if os.getuid() != 0:  # already an ordinary user
        return Machine()
    home = place.folder / "home"
    home.mkdir(exist_ok=True)
    entry = pwd.getpwnam(USER)
    os.chown(home, entry.pw_uid, entry.pw_gid)
    become = ("setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")
    variables = {"HOME": str(home), "TMPDIR": str(home)}
    # Other users cannot read root's home folder, nor a Python inside it. `setpriv` can still start
    # that Python, but its child processes cannot.
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    if _runs([*become, sys.executable, "-c", again]):
        return Machine(prefix=become, environment=variables)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = f"/usr/bin/{version}"
    if _runs([*become, system, "-c", again]):
        variables |= PACKAGES
        return Machine(prefix=become, environment=variables, python=system)
    raise NotAvailableError(f"no {version} that user {USER} can run")


def _runs(command: Sequence[str]) -> bool:
    try:
        return run(command, cwd=Path("/"), check=False).exit_code == 0
    except ProcessError:  # no such program
        return False


def _emulate(model: str) -> Callable[[RunContext], Machine]:
    def make(_: RunContext) -> Machine:
        python, prefix = os.path.realpath(sys.executable), ("qemu-x86_64", "-cpu", model)
        if platform.machine() != "x86_64" or not _runs([*prefix, python, "-c", ""]):
            raise NotAvailableError("no qemu-x86_64 that runs this Python (Debian: qemu-user)")
        # A worker would be a process of its own, which the kernel runs without the emulator.
        return Machine(prefix=prefix, environment=PACKAGES, options=("-n", "0"), python=python)

    return make


def _link_statically(place: RunContext) -> Machine:
    """The objects of the build without limits, linked as the toolchains of some vendors do."""
    found = run(["c++", "-print-file-name=libstdc++.a"], check=False).stdout.strip()
    if not Path(found).is_absolute():
        raise NotAvailableError("no libstdc++.a (Fedora: libstdc++-static)")
    kinds = ("SHARED", "MODULE")
    options = [f"-DCMAKE_{kind}_LINKER_FLAGS={STATIC}" for kind in kinds]
    package = place.build("static", options, build="build")
    if b"libstdc++.so" in (package / "libinfini_ops.so").read_bytes():
        raise NotAvailableError("this compiler links the shared libstdc++ all the same")
    return _with_package(package)


def _compile_with(compiler: str, options: str) -> Callable[[RunContext], Machine]:
    def make(place: RunContext) -> Machine:
        if not _runs([compiler, "--version"]):
            raise NotAvailableError(f"no {compiler} (Debian: clang)")
        name = "".join(it if it.isalnum() else "-" for it in compiler + options)
        # The last option wins: those of CMakeLists.txt come before.
        wrapper = place.folder / name
        wrapper.write_text(f'#!/bin/sh\nexec {compiler} "$@" {options}\n', encoding="utf-8")
        wrapper.chmod(0o755)
        built = place.build(
            f"{name}-site", [f"-DCMAKE_CXX_COMPILER={wrapper}"], build=f"{name}-build"
        )
        return _with_package(built)

    return make


def _with_package(package: Path) -> Machine:
    return Machine(environment={"PYTHONPATH": str(package.parents[1])})


def _change_mounts(*options: str) -> Machine:
    """Return a machine in a mount namespace of its own, which ends with the run."""
    enter = (sys.executable, str(HERE / "enter.py"), *options, "--")
    prefix = ("unshare", "--mount", "--propagation", "private", *enter)
    if not _runs([*prefix, "true"]):
        raise NotAvailableError("no mount namespace: run as root, outside of a container")
    return Machine(prefix=prefix)


def _turkish(place: RunContext) -> Machine:
    """In Turkish, lower-case `I` is not an ASCII letter, and the decimal point is a comma."""
    locales = place.folder / "locales"
    locales.mkdir(exist_ok=True)
    name = f"{TURKISH}.UTF-8"
    try:
        run(["localedef", "-i", TURKISH, "-f", "UTF-8", str(locales / name)], check=False)
    except ProcessError as error:
        raise NotAvailableError(str(error)) from None
    variables = {"LOCPATH": str(locales), "LC_ALL": name}
    check = "import locale; locale.setlocale(locale.LC_ALL, ''); print(locale.str(0.5))"
    checked = run(
        [sys.executable, "-c", check], environment={**os.environ, **variables}, check=False
    )
    if checked.stdout.strip() != "0,5":
        raise NotAvailableError(f"the locale {name} cannot be built here (Debian: locales)")
    return Machine(environment=variables)


def _random_order(_: RunContext) -> Machine:
    variables = {"PYTHONPATH": str(HERE), "INFINI_OPS_TEST_ORDER": str(SEED)}
    return Machine(environment=variables, options=("-p", "random_order"))
