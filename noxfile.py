# /// script
# requires-python = ">=3.11"
# dependencies = ["nox==2026.10.20"]
# ///
"""The front door of the project: one session per job that a person runs.

``nox -s build-cpu`` where nox is installed, ``python3 noxfile.py -s build-cpu`` where it is
not: run as a program, this file first puts nox into a virtual environment of its own, so
that nothing is installed into the system's Python.
"""

# No `from __future__`: Python 3.6 must reach the message that rejects it.
import fcntl
import logging
import os
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent
STARTED = "INFINI_NOX"  # passed to the process that has nox: the command that started this file
NOX = "nox==2026.10.20"


def stop(text: object, remedy: str) -> None:
    """Print the failure and its remedy, and exit with code 3, as `python -m ci` does."""
    print(f"noxfile.py: {text}\n{remedy}", file=sys.stderr)
    sys.exit(3)


if sys.version_info < (3, 11):  # noqa: UP036
    stop(
        f"got Python {sys.version.split()[0]} ({sys.executable}), expected 3.11 or newer",
        "Start it with a newer one, as in: python3.12 noxfile.py -s build-cpu\n"
        "Ubuntu 22.04: sudo apt-get install python3.11-venv python3.11-dev\n"
        "RHEL 8 and 9 and their derivatives: sudo dnf install python3.11-devel",
    )

if sys.platform == "win32":
    stop("got Windows, expected Linux", "Run it in WSL 2: https://learn.microsoft.com/windows/wsl")


# For modules that need no installed package: nox loads only this file.
sys.path.insert(0, str(ROOT))


def refuse_unfit_machine() -> None:
    """Exit before any download if this machine lacks a prerequisite of the sessions."""
    from ci.engines.checks import require
    from ci.errors import PrerequisiteError
    from ci.upkeep.doctor.prerequisites import check_first_use

    try:
        require("these sessions", check_first_use(ROOT, sys.argv[1:], os.environ))
    except PrerequisiteError as error:
        stop(error, error.remedy or "Nothing was downloaded.")


def enter_own_environment() -> None:
    """Replace this process by one that has nox, and install nox on the first use."""
    environment = ROOT / ".nox" / "bootstrap"
    python = environment / "bin" / "python"
    installed = environment / NOX  # written last: an interrupted install is repeated
    # Other sessions need no more than they did; the check takes 0.2 s.
    runs = any(word == "release" or word.startswith("build-") for word in sys.argv)
    if runs or not installed.exists():
        refuse_unfit_machine()
    if not installed.exists():
        print(f"noxfile.py: installing {NOX} into {environment}", file=sys.stderr)
        # One retry: with pip's five, an index that cannot be reached costs 8 s.
        install = [str(python), "-m", "pip", "install", "--quiet", "--retries", "1", NOX]
        if subprocess.run([sys.executable, "-m", "venv", "--clear", environment]).returncode:
            stop(
                f"{sys.executable} cannot make the virtual environment {environment}: see above",
                "Correct that, or install nox another way: pipx run nox -s build-cpu",
            )
        if subprocess.run(install).returncode:
            stop(
                f"pip cannot install {NOX}: see above",
                "If no package index can be reached, name this site's mirror, proxy and\n"
                "certificates: PIP_INDEX_URL, HTTPS_PROXY, PIP_CERT. Or fill a folder of wheels\n"
                "where there is an index (python3 noxfile.py -s wheels), copy it here, and set\n"
                "PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER.",
            )
        installed.touch()
    os.execv(python, [str(python), __file__, *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    os.environ.setdefault(STARTED, shlex.join([sys.orig_argv[0], sys.argv[0]]))
    try:
        import nox
    except ModuleNotFoundError:
        enter_own_environment()

import nox  # noqa: E402

from ci.model.platforms import PLATFORMS  # noqa: E402
from ci.model.trust import Trust  # noqa: E402
from ci.plan.ci_variables import read_ci_job  # noqa: E402

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_venv = "yes"
# uv would not see the wheels that a site offers through pip's settings.
nox.options.default_venv_backend = "virtualenv"
# nox looks for uv whatever the backend is, and each session would begin with this line.
logging.getLogger("nox").addFilter(lambda record: record.msg != "uv binary not found.")
# For sessions that run `python -m ci`: they share one environment, see `ci_python`.
ci_session = partial(nox.session, venv_backend="none")

# Sessions run tests and generators, which need their assertions. Modules of their environments are
# compiled at the first import. Container images often set the second variable.
os.environ.pop("PYTHONOPTIMIZE", None)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

E2E = "tests/e2e"
# Of CI systems. The project's tests must not write to the summary of a job, nor depend on it.
CI_VARIABLES = ("BUILDKITE", "CI_", "GITEA_", "GITHUB_", "GITLAB_", "JENKINS_")
FRESH = (f"{E2E}/test_fresh_machine.py", f"{E2E}/test_every_python.py")
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
WORKFLOWS = {
    "github-workflows": [".github/workflows/ci.yml"],
    "gitlab-ci": [".gitlab-ci.yml", ".gitlab/platforms.yml"],
}
COMPILED_TESTS = ("cpu", "cuda", "ops", "triton")
FORMATTED = tuple(
    f"{folder}/**/*.{suffix}"
    for folder in ("src", "bench", "examples", *(f"tests/{part}" for part in COMPILED_TESTS))
    for suffix in ("h", "c", "cc", "cu")
)


def install_groups(session: nox.Session, *groups: str) -> None:
    """Install dependency groups of pyproject.toml, which need no build of the library.

    Python compiles modules at their first import. That takes 5 CPU-seconds for the imported modules
    of torch; pip would compile all of them, in 30.
    """
    session.install("--no-compile", *nox.project.dependency_groups(PYPROJECT, *groups))


def ci_python(session: nox.Session, *groups: str) -> str:
    """Return the Python of the environment that all sessions of ``ci`` share.

    It gets what it lacks of the dependency groups. A file names what it has: pip would take 0.5 s,
    as long as a report, to find nothing missing.
    """
    version = f"Python {sys.version.split()[0]}"
    wanted = [version, *nox.project.dependency_groups(PYPROJECT, *groups)]
    folder = session.cache_dir.parent / "ci"
    python, record = folder / "bin" / "python", folder / "installed.txt"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # sessions may start side by side
        is_whole = record.exists() and python.exists()
        installed = record.read_text(encoding="utf-8").splitlines() if is_whole else []
        if not set(wanted) <= set(installed):
            record.unlink(missing_ok=True)  # written last: an interrupted install is repeated
            run = partial(session.run_install, external=True, silent=True)
            if version not in installed:
                run(sys.executable, "-m", "virtualenv", "--clear", str(folder))
            run(str(python), "-m", "pip", "install", "--no-compile", *wanted[1:])
            record.write_text("\n".join(wanted), encoding="utf-8")
    return str(python)


def run_ci(session: nox.Session, *arguments: str, groups: tuple[str, ...] = ("ci",)) -> None:
    """Run ``python -m ci`` in an environment that has its dependencies."""
    if os.environ.get("INFINI_CI_DB", "").startswith("postgresql"):
        groups = (*groups, "postgresql")
    if "RAY_ADDRESS" in os.environ or "ray" in session.posargs:
        groups = (*groups, "ray")
    python = ci_python(session, *groups)
    # Messages name commands as the user of this file can type them.
    environment = {"INFINI_CI_NOX": os.environ.get(STARTED, "nox")}
    # On Ctrl-C nox would kill it after half a second. It needs longer to stop a container, copy
    # the results out and store them. A second Ctrl-C makes it give up on that.
    command = (python, "-m", "ci", *arguments, *session.posargs)
    session.run(*command, env=environment, external=True, interrupt_timeout=None)


def build_changelog(session: nox.Session, *arguments: str, silent: bool = False) -> None:
    """Run towncrier for the version of pyproject.toml; it rejects files of unknown kinds."""
    version = PYPROJECT["project"]["version"]
    session.run("towncrier", "build", "--version", version, *arguments, silent=silent)


def add_build_session(platform: str) -> None:
    @ci_session(name=f"build-{platform}")
    def build(session: nox.Session) -> None:
        # The host engine finds devices with the second group; containers have their own.
        groups = ("ci",) if PLATFORMS[platform].devices is None else ("ci", "devices")
        run_ci(session, "run", platform, groups=groups)

    build.__doc__ = f"Validate a release on {platform}: build, install, test, table."


for platform in PLATFORMS:
    add_build_session(platform)


@ci_session
def release(session: nox.Session) -> None:
    """Validate a release on all configured platforms side by side; `-- ascend cpu` on two.

    Without the vendors' hardware: `-- --config tests/simulated/ci.yaml`. It runs with
    `--trust release`, unless you name a level, or a CI system states that the code is a stranger's.
    It ends with the decision of `python -m ci gate` by the section `release:` of ci.yaml: the exit
    code is 0 for go, 4 if only regressions stand against it, and 1 for any other no-go. A bundle
    has no decision: decide where its results are brought together.
    """
    resumed = any(word.startswith("--resume") for word in session.posargs)
    named = resumed or set(PLATFORMS) & set(session.posargs)
    arguments = [] if named else ["--all"]
    strangers = read_ci_job(os.environ).trust is Trust.UNTRUSTED
    if not (resumed or strangers or any(word.startswith("--trust") for word in session.posargs)):
        arguments += ["--trust", Trust.RELEASE]
    if not any(word.startswith("--bundle") for word in session.posargs):
        arguments.append("--gate")
    try:
        run_ci(session, "run", *arguments, groups=("ci", "devices"))
    except nox.command.CommandFailed as failed:
        # nox itself exits with 1, whatever the code. Its older versions do not know the code.
        sys.exit(getattr(failed, "return_code", None) or 1)


@nox.session
def wheels(session: nox.Session) -> None:
    """Fill the folder wheels for machines without an index; `-- -r FILE` adds requirements.

    It gets nox and the packages of the orchestrator. The host engine also needs the platform's
    requirements, such as those in docker/requirements-vendor.txt.
    """
    groups = nox.project.dependency_groups(PYPROJECT, "ci", "devices")
    # What comes after `--` is for another environment, with versions of its own.
    for wanted in ([NOX, *groups], session.posargs):
        if wanted:
            session.run("python", "-m", "pip", "wheel", "--wheel-dir", "wheels", *wanted)


@ci_session
def report(session: nox.Session) -> None:
    """Print the results table of a run, the latest by default."""
    run_ci(session, "report")


@ci_session
def compare(session: nox.Session) -> None:
    """Show what has changed between two runs, platforms or contracts: `-- BASE HEAD`."""
    run_ci(session, "compare")


@ci_session
def history(session: nox.Session) -> None:
    """Show what a platform's stages cost over its runs, and what got worse: `-- cpu`."""
    run_ci(session, "history")


@ci_session
def dashboard(session: nox.Session) -> None:
    """Write the history as pages for a browser into build/dashboard; `-- --screenshots`: the docs'.

    The screenshots in docs/images are of an example. They need Debian's chromium.
    """
    if "--screenshots" in session.posargs:
        session.run(ci_python(session, "ci", "browser"), "-m", "tests.dashboard", external=True)
        return
    run_ci(session, "dashboard", "--output", "build/dashboard")


@nox.session
def tests(session: nox.Session) -> None:
    """Run the project's tests, with real containers where a Docker Engine answers.

    Tests that take minutes and have a narrower one of their kind run only with `-- complete`.
    `-- fuzz` feeds 100,000 hostile inputs to the readers of what containers write.
    `-- tests/e2e/test_ray.py` runs the Ray engine on a cluster of several network namespaces.
    """
    if session.posargs[:1] == ["fuzz"]:
        install_groups(session, "fuzz")
        session.run("python", "-m", "tests.fuzz", *session.posargs[1:])
        return
    uses_ray = any(name.endswith("test_ray.py") for name in session.posargs)
    install_groups(session, "tests", *(["ray"] if uses_ray else []))
    outside = {name: None for name in os.environ if name.startswith(CI_VARIABLES)}
    is_complete = session.posargs == ["complete"]
    if session.posargs and not is_complete:
        session.run("python", "-m", "pytest", *session.posargs, env=outside)
        return
    pytest = ("python", "-m", "pytest", *([] if is_complete else ["-m", "not complete"]))
    # This compiles all modules, which each of the workers would do otherwise.
    session.run(*pytest, "--collect-only", "-q", env=outside, silent=True)
    # Whole files run side by side, because their tests share compiled programs. Those of engines
    # wait half of their time. So many at once fit in the memory of a small machine.
    workers = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
    session.run(*pytest, *workers, "--durations", "40", env=outside)


@nox.session
def samples(session: nox.Session) -> None:
    """Re-record the samples of the operator tests, with the torch of the dependency group."""
    install_groups(session, "samples")
    session.run("python", "tests/ops/samples/record.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the cost of building, importing and calling the library, and of a release.

    `-- --only pool` replays recorded jobs on a Ray cluster of four raylets.
    """
    uses_ray = any("pool" in word.split(",") for word in session.posargs)
    install_groups(session, "bench", *(["ray"] if uses_ray else []))
    session.run("python", "-m", "bench", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant 98 faults in the library, one by one; the tests must catch them all.

    `-- --draw SEED` draws half of them again.
    """
    install_groups(session, "mutants")
    if any(word.startswith("--draw") for word in session.posargs):
        # Drawing needs none of its dependencies: one of them replaces Python's own `typing`.
        session.install("--no-deps", *nox.project.dependency_groups(PYPROJECT, "draw"))
    session.run("python", "-m", "tools.mutants", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Do the over 300 faults of docs/faults.md to runs in containers; `-- --selection`: few.

    The selection has one fault of each kind.
    """
    install_groups(session, "tests")
    pytest = ("python", "-m", "pytest", "tools/faults/test_fault_suite.py", "-n", "4")
    session.run(*pytest, *session.posargs)


@nox.session
def sanitizers(session: nox.Session) -> None:
    """Test the hand-written code under the compiler's sanitizers; `-- thread` runs only one."""
    install_groups(session, "sanitizers")
    folder = session.cache_dir / "sanitizers"
    session.run("python", "-m", "tools.sanitizers", f"--work-dir={folder}", *session.posargs)


@nox.session
def machines(session: nox.Session) -> None:
    """Run the operator suite as on other machines, and README's commands on fresh ones.

    The other machines differ in instruction set, cores, user and locale. With an option, such as
    `-- --fast`, only they run.
    """
    install_groups(session, "machines")
    session.run("python", "-m", "tools.machines", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "pytest", "-m", "machines", *FRESH)


@nox.session
def compat(session: nox.Session) -> None:
    """Build and test on every installed Python from 3.10; `-- torches`: with other torches."""
    requirements = PYPROJECT["build-system"]["requires"]
    # torchgen needs typing-extensions, which comes with torch otherwise.
    session.install(*requirements, "cmake", "ninja", "typing-extensions")
    folder = session.cache_dir / "compat"
    session.run("python", "-m", "tools.compat", f"--work-dir={folder}", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style, types, spelling, the workflows of CI systems and the changelog."""
    install_groups(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("mypy")
    session.run("codespell")
    build_changelog(session, "--draft", silent=True)
    for schema, files in WORKFLOWS.items():
        session.run("check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files)
    sources = [str(path) for pattern in FORMATTED for path in sorted(ROOT.glob(pattern))]
    session.run("clang-format", "--dry-run", "--Werror", *sources)


@nox.session
def changelog(session: nox.Session) -> None:
    """Print what the next version has in the changelog; `-- --yes`: move it to CHANGELOG.md.

    The version is that of pyproject.toml. The files in `changes` are removed.
    """
    install_groups(session, "changelog")
    build_changelog(session, *(session.posargs or ["--draft"]))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation's site into build/site. A warning or a broken link is an error."""
    install_groups(session, "docs")
    # Material announces its successor in a box of ten lines.
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    session.run("python", "-m", "mkdocs", "build", "--strict", *session.posargs, env=quiet)
    session.run("python", "-m", "tests.docs.site", "build/site")


if __name__ == "__main__":
    os.chdir(ROOT)
    nox.main()
