"""No command runs a program that the repository under test names."""

from __future__ import annotations

import io
import os
import pty
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ci.engines.checks import Severity
from ci.errors import ExitCode, UsageError
from ci.plan import source
from ci.plan.accepted import acceptor
from ci.plan.project import load_project
from ci.plan.request import new_request, source_changes
from ci.run.commit_runs import Checkout, temporary_checkout
from ci.upkeep.doctor.prerequisites import check_git
from ci.util.process import ProcessError
from tests.ci.stored_history import Project, git

# A filter has no arguments. It gets the file on its standard input, and has to return one.
PROGRAM = """\
#!/bin/sh
echo "$0 $*" >> "{ran}"
test $# -gt 0 || cat
"""


@dataclass(frozen=True)
class Trap:
    """A project whose repository names a program, and how plain git runs it."""

    project: Project
    source: Path
    program: Path
    ran: Path

    def __post_init__(self) -> None:
        self.program.write_text(PROGRAM.format(ran=self.ran))
        self.program.chmod(0o755)

    def git(self, *arguments: str, folder: Path | None = None) -> str:
        return git(folder or self.source, "-c", "protocol.file.allow=always", *arguments)

    def set(self, name: str, value: str | Path | None = None, *, file: Path | None = None) -> None:
        where = ["--file", str(file)] if file else []
        self.git("config", *where, name, str(value or self.program))

    def write(self, name: str, text: str = "text\n") -> None:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self) -> None:
        self.git("add", "--all")
        self.project.commit()

    def other(self, name: str, folder: Path | None = None) -> Path:
        """Another repository, with a commit."""
        path = (folder or self.project.folder) / name
        path.mkdir(parents=True)
        self.git("init", "--quiet", folder=path)
        (path / "a.txt").write_text("text\n")
        self.git("add", ".", folder=path)
        self.git("commit", "--quiet", "--message", "All", folder=path)
        return path

    def submodule(self) -> Path:
        library = self.other("library")
        self.git("submodule", "--quiet", "add", str(library), "vendor/lib")
        self.project.commit()
        return self.source / "vendor" / "lib"

    def touch(self, name: str) -> None:
        """Let git compare the contents of a file again, which a filter reads first."""
        os.utime(self.source / name, (1, 1))


Plain = list[str]
"""Arguments with which plain git runs the program."""


def setting(name: str, value: str, *plain: str) -> Callable[[Trap], Plain]:
    """A trap of one setting of the repository; in ``value``, ``{}`` is the program."""

    def plant(trap: Trap) -> Plain:
        trap.set(name, value.format(trap.program))
        return [*plain]

    plant.__name__ = name
    return plant


def included_monitor(trap: Trap) -> Plain:
    trap.write("settings")
    trap.set("core.fsmonitor", file=trap.source / "settings")
    trap.commit()
    trap.set("include.path", "../settings")
    return ["status"]


def clean_filter(trap: Trap) -> Plain:
    trap.write(".gitattributes", "*.txt filter=own\n")
    trap.write("a.txt")
    trap.commit()
    trap.set("filter.own.clean")
    trap.touch("a.txt")
    return ["status"]


def filter_process(trap: Trap) -> Plain:
    clean_filter(trap)
    trap.git("config", "--unset", "filter.own.clean")
    trap.set("filter.own.process")
    return ["status"]


def smudge_filter(trap: Trap) -> Plain:
    trap.write(".gitattributes", "*.txt filter=own\n")
    trap.write("a.txt")
    trap.commit()
    trap.set("filter.own.smudge")
    (trap.source / "a.txt").unlink()
    return ["checkout", "--force", "HEAD"]


def nested_repository(trap: Trap) -> Plain:
    nested = trap.other("nested", trap.source)
    trap.set("core.fsmonitor", file=nested / ".git" / "config")
    return ["-C", "nested", "ls-files", "--others", "--exclude-standard"]


def embedded_bare_repository(trap: Trap) -> Plain:
    """A fresh clone: nothing in its ``.git`` is of the attacker."""
    bare = trap.source / "bare"
    trap.git("clone", "--quiet", "--bare", str(trap.source), str(bare))
    for name, value in {"core.bare": "false", "core.worktree": ".."}.items():
        trap.set(name, value, file=bare / "config")
    trap.set("core.fsmonitor", file=bare / "config")
    (bare / "refs" / "heads" / "empty").write_text("")  # git tracks no empty folder
    (bare / "ci.yaml").write_text((trap.source / "ci.yaml").read_text())
    trap.git("add", "--all")
    for tag in ("first", "second"):  # both commits have the folder
        trap.project.run(trap.project.commit())
        trap.git("tag", "--force", tag)
    return ["-C", "bare", "status"]


def hook_of_a_commit(trap: Trap) -> Plain:
    trap.write("hooks/post-checkout", trap.program.read_text())
    (trap.source / "hooks" / "post-checkout").chmod(0o755)
    trap.commit()
    trap.set("core.hooksPath", "hooks")
    return ["checkout", "--force", "HEAD"]


def hook_of_the_index(trap: Trap) -> Plain:
    hook = trap.source / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(trap.program.read_text())
    hook.chmod(0o755)
    trap.write("a.txt")
    trap.commit()
    trap.touch("a.txt")
    return ["status"]


def worktree_configuration(trap: Trap) -> Plain:
    trap.set("extensions.worktreeConfig", "true")
    trap.set("core.fsmonitor", file=trap.source / ".git" / "config.worktree")
    return ["status"]


def ssh_command(trap: Trap) -> Plain:
    trap.set("core.sshCommand")
    trap.set("remote.origin.url", "ssh://example.invalid/a")
    trap.set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    return ["fetch", "origin"]


def signature_program(trap: Trap) -> Plain:
    trap.set("gpg.program")
    trap.set("log.showSignature", "true")
    text = trap.git("cat-file", "commit", "HEAD")
    head, _, body = text.partition("\n\n")
    signed = (
        f"{head}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\n{body}"
    )
    trap.write("signed", f"{signed}\n")
    name = trap.git("hash-object", "-t", "commit", "-w", "signed")
    (trap.source / "signed").unlink()
    trap.git("reset", "--quiet", "--hard", name)
    return ["log", "-1"]


def external_diff(trap: Trap) -> Plain:
    trap.set("diff.external")
    trap.write("ci.yaml", (trap.source / "ci.yaml").read_text() + "\n")
    return ["diff"]


def text_conversion(trap: Trap) -> Plain:
    trap.write(".gitattributes", "*.txt diff=own\n")
    trap.write("a.txt")
    trap.commit()
    trap.set("diff.own.textconv")
    trap.write("a.txt", "other\n")
    return ["diff"]


def pack_of_a_submodule(trap: Trap) -> Plain:
    trap.submodule()
    own = trap.source / ".git" / "modules" / "vendor" / "lib" / "config"
    trap.set("remote.origin.uploadpack", file=own)
    return ["-C", "vendor/lib", "fetch", "--quiet"]


def update_of_a_submodule(trap: Trap) -> Plain:
    folder = trap.submodule()
    trap.set("submodule.vendor/lib.update", f"!{trap.program}")
    trap.git("commit", "--quiet", "--allow-empty", "--message", "Other", folder=folder)
    return ["submodule", "update"]


def monitor_of_a_submodule(trap: Trap) -> Plain:
    trap.submodule()
    trap.set("core.fsmonitor", file=trap.source / ".git" / "modules" / "vendor/lib/config")
    return ["status"]


def refs_of_alternates(trap: Trap) -> Plain:
    trap.set("core.alternateRefsCommand")
    other = trap.other("other")
    names = trap.source / ".git" / "objects" / "info" / "alternates"
    names.write_text(f"{other / '.git' / 'objects'}\n")
    trap.set("remote.origin.url", other)
    trap.set("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    return ["fetch", "--quiet", "origin"]


def missing_object(trap: Trap) -> Plain:
    """git fetches what a partial clone lacks, when it is read."""
    trap.write("a.txt", "missing\n")
    trap.commit()
    name = trap.git("rev-parse", "HEAD:a.txt")
    trap.write("a.txt", "other\n")
    (trap.source / ".git" / "objects" / name[:2] / name[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(trap.source),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": str(trap.program),
    }.items():
        trap.set(key, value)
    return ["cat-file", "blob", name]


TRAPS: tuple[Callable[[Trap], Plain], ...] = (
    setting("core.fsmonitor", "{}", "status"),
    setting("core.pager", "{}", "log", "-1"),
    setting("alias.st", "!{}", "st"),
    *(included_monitor, clean_filter, filter_process, smudge_filter, nested_repository),
    *(embedded_bare_repository, hook_of_a_commit, hook_of_the_index, worktree_configuration),
    *(ssh_command, signature_program, external_diff, text_conversion, pack_of_a_submodule),
    *(update_of_a_submodule, monitor_of_a_submodule, refs_of_alternates, missing_object),
)


def run_plainly(trap: Trap, arguments: Plain) -> None:
    """Run git as a user does: on a terminal, where it uses a pager."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "TERM": "xterm"}
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    ours, its = pty.openpty()
    try:
        subprocess.run(
            command,
            cwd=trap.source,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=its,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
    finally:
        os.close(ours)
        os.close(its)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trap:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = Project(folder=tmp_path)
    project.configure()
    git(project.source, "init", "--quiet")
    git(project.source, "add", ".")
    project.run(project.commit())
    project.run(project.commit())
    git(project.source, "tag", "first", "HEAD~1")
    git(project.source, "tag", "second", "HEAD")
    ran = tmp_path / "ran"
    return Trap(project=project, source=project.source, program=tmp_path / "program", ran=ran)


def call_everything(trap: Trap, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do with the source what each command does up to its stages."""
    project, config = trap.project, folder / "ci.yaml"
    place = ("--source", str(folder), "--config", str(config))
    plan = ("cpu", "--engine", "host", *place)
    assert project.ci("run", *plan, "--dry-run")[0] == ExitCode.PASSED
    assert project.ci("manifest", "cpu", "--system", "slurm", *place)[0] == ExitCode.PASSED
    results = ("--source", str(folder))
    assert project.ci("compare", "first", "second", *results)[0] == ExitCode.PASSED
    assert project.ci("history", "cpu", *results)[0] == ExitCode.PASSED
    assert project.ci("report", "second", *results)[0] == ExitCode.PASSED
    pages = ("--output", str(project.folder / "pages"))
    assert project.ci("dashboard", *pages, *results)[0] == ExitCode.PASSED
    assert check_git(folder).level is Severity.OK  # what `doctor` and `run` call
    assert acceptor(folder)  # `history --accept`
    search(project, place, monkeypatch)
    run_and_repeat(project, folder)


def search(project: Project, place: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Search as ``bisect`` does; each commit is checked out, and no stage runs."""
    checked_out = []

    def check_out(checkout: Checkout, commit: str, *_: object) -> None:
        checkout.project_at(commit)
        found = source.state(checkout.source)
        assert (found.commit, found.dirty) == (commit, False)
        checked_out.append(commit)
        raise UsageError("not run")

    with monkeypatch.context() as patched:
        patched.setattr(Checkout, "run", check_out)
        ends = ("--good", "first", "--bad", "second", "--test", "a")
        code, said = project.ci("bisect", "cpu", *ends, *place)
    assert (code, "cannot be judged: not run" in said) == (ExitCode.USAGE, True), said
    assert checked_out
    with temporary_checkout(Path(place[1]), Path(place[3]), "all") as checkout:
        for commit in git(project.source, "rev-list", "--max-count=2", "HEAD").split():
            with suppress(ProcessError):  # an object is missing
                checkout.project_at(commit)


def run_and_repeat(project: Project, folder: Path) -> None:
    """Plan a run, copy its sources, and look for changes, as ``--resume`` and ``rerun`` do."""
    config = load_project(folder / "ci.yaml", {})
    request = new_request(config, ["cpu"], source_folder=folder, results=project.results)
    assert request.commit
    source.write_archive(folder, io.BytesIO())
    assert source_changes(request, project.results) is None


@pytest.mark.parametrize("plant", TRAPS, ids=lambda it: it.__name__)
def test_no_program_of_a_repository_runs(
    trap: Trap, plant: Callable[[Trap], Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = plant(trap)
    trap.ran.unlink(missing_ok=True)  # what was planted may have run while it was
    if plant in (clean_filter, filter_process):
        trap.touch("a.txt")
    folder = trap.source
    if plant is embedded_bare_repository:
        clone = trap.project.folder / "clone"
        trap.git("clone", "--quiet", str(trap.source), str(clone))
        folder = clone / "bare"
    call_everything(trap, folder, monkeypatch)
    assert not trap.ran.exists(), trap.ran.read_text()
    run_plainly(trap, plain)
    assert trap.ran.exists()  # what was planted is real
