"""Other commits of a repository, written to a folder of their own.

Neither filters nor hooks run, and nothing is fetched: what comes out is what git stores.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

from ci.errors import CiError
from ci.util.files import remove_folder
from ci.util.git import (
    WorkTree,
    call_on,
    fill_git_folder,
    find_work_tree,
    git,
    has_repository,
    run_git,
    shown,
    submodules,
)
from ci.util.process import ProcessError, last_lines
from ci.util.terminal import complain

NAMED = re.compile(r"submodule\..+\.path", re.DOTALL)


def check_out(root: Path, commit: str, folder: Path) -> None:
    """Write a commit of the repository of ``root`` to ``folder``, with its submodules.

    Neither filters nor hooks run, and nothing is fetched. ``folder`` may have another commit, and
    becomes a repository that reads the objects and refs of the first one. A submodule that ``root``
    has never had is an empty folder.
    """
    tree = find_work_tree(root)
    if tree is None:
        raise ProcessError(f"{shown(root)} is not in a git repository", remedy="Name a clone.")
    _check_out(tree, commit, folder.resolve())


def _check_out(tree: WorkTree, commit: str, folder: Path) -> None:
    own = folder / ".git"
    copy = WorkTree(top=folder, own=own, common=own)
    if not own.exists():
        own.mkdir(parents=True)
        fill_git_folder(own, tree)
        (own / "objects").symlink_to(tree.common / "objects")
        (own / "HEAD").write_text(f"{commit}\n")
    checkout = ("checkout", "--quiet", "--force", "--detach", commit)
    for command in (checkout, ("clean", "--quiet", "-ffdx")):
        result = run_git(own, copy, folder, command)
        if result.exit_code:
            message = f"{shown(tree.top)}: git cannot check out {commit}"
            remedy = f"Fetch what it lacks: git -C {shlex.quote(str(tree.top))} fetch"
            raise ProcessError(f"{message}{last_lines(result.stderr)}", remedy=remedy)
    links = submodules(folder)
    names = _submodule_names(folder) if links else {}
    for path, pinned in links.items():
        relative = path.relative_to(folder)
        found = _stored_submodule(tree, relative, names.get(str(relative)))
        if found is None or path.resolve() != path:
            continue
        asked = ("cat-file", "-e", f"{pinned}^{{commit}}")
        if call_on(found, found.top, asked).exit_code:
            where = shlex.quote(str(found.top))
            message = f"submodule {shown(relative)}: {shown(found.own)} has no commit {pinned}"
            remedy = f"Fetch it: git -C {where} fetch origin {pinned}"
            raise ProcessError(message, remedy=remedy)
        remove_folder(path)
        _check_out(found, pinned, path)


def _submodule_names(folder: Path) -> dict[str, str]:
    """Return the names of submodules by path, as the commit has them."""
    command = ("config", "--blob", "HEAD:.gitmodules", "--no-includes", "--list", "-z")
    entries = (it.partition("\n") for it in git(folder, *command, check=False).split("\0"))
    named = (NAMED.fullmatch(key) and (key, value) for key, _, value in entries)
    return {value: key[len("submodule.") : -len(".path")] for key, value in filter(None, named)}


def _stored_submodule(tree: WorkTree, relative: Path, name: str | None) -> WorkTree | None:
    """Find what a clone has of a submodule: where it is checked out, or where git keeps it."""
    here = tree.top / relative
    if has_repository(here):
        return find_work_tree(here)
    if name is None or ".." in Path(name).parts or Path(name).is_absolute():
        return None
    own = tree.common / "modules" / name
    return WorkTree(top=own, own=own, common=own) if (own / "HEAD").exists() else None


def _main() -> int:
    """``python -m ci.util.checkout TOP COMMIT FOLDER``: as ``check_out``."""
    top, commit, folder = sys.argv[1:]
    try:
        check_out(Path(top), commit, Path(folder))
    except CiError as error:
        complain(f"error: {error}")
        complain(error.remedy or "")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
