"""The file ``ci-accepted.yaml`` of a project: the rises of cost that its reviewers accept."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import yaml

from ci.errors import ConfigError
from ci.facts.acceptance import Acceptance, AcceptedFile
from ci.plan.load import load_accepted, load_config
from ci.util.files import write_atomically
from ci.util.git import user_setting
from ci.util.invocation import ACCEPTED_FILE, CONFIG_FILE
from ci.util.process import ProcessError

HEADER = """\
# Accepted rises of build and test cost. `python -m ci accept` and `python -m ci withdraw` write
# this file. Review it like source code.
"""
UNBROKEN = 1_000_000
"""Columns: a line per key, whatever its length, is the easiest to review."""


class _Dumper(yaml.SafeDumper):
    """Writes equal dates in full: the loader refuses aliases."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def read_accepted(folder: Path, project: str) -> tuple[Acceptance, ...] | None:
    """Read the file in a project's folder.

    ``None`` if it does not exist or is of another project. Raises ``ConfigError`` with all
    findings.
    """
    path = folder / ACCEPTED_FILE
    if not path.exists():
        return None
    found = load_accepted(path)
    return found.accepted if found.project == project else None


def write_accepted(folder: Path, project: str, accepted: Sequence[Acceptance]) -> Path:
    """Write the file in a project's folder, and return its path.

    Comments, and the lines of acceptances that do not change, stay as they are.

    Raises ``ConfigError`` if the folder is that of another project.
    """
    path = folder / ACCEPTED_FILE
    known = load_accepted(path) if path.exists() else None
    file = path if known else folder / CONFIG_FILE
    owner = (known or load_config(file)).project
    if owner != project:
        message = f"{file}: project: got '{owner}', expected '{project}', the project of the runs"
        raise ConfigError(message, remedy="Name the folder of that project: --source DIR")
    content = AcceptedFile(project=project, accepted=tuple(accepted))
    text = path.read_text(encoding="utf-8").rstrip("\n") + "\n" if known else ""
    edited = _edit(text, known.accepted, content.accepted) if known else None
    if edited is None or _parse(edited) != content:
        edited = (_leading_comments(text) or HEADER) + _dump(
            {"project": project, "accepted": [*map(_entry, accepted)]}
        )
    write_atomically(path, edited)
    return path


def _edit(text: str, known: Sequence[Acceptance], accepted: Sequence[Acceptance]) -> str | None:
    """Replace the lines of the acceptances that change; ``None`` if they are no list of lines."""
    root = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        return None
    listed = next((value for key, value in root.value if key.value == "accepted"), None)
    if not isinstance(listed, yaml.SequenceNode) or listed.flow_style or not accepted:
        return None
    lines = text.splitlines(keepends=True)
    keys = {key.value: key.start_mark.line for key, _ in root.value}
    starts = [item.start_mark.line for item in listed.value]
    rest = min((it for it in keys.values() if it > starts[0]), default=len(lines))
    begin = keys["accepted"] + 1
    edited, comments = lines[:begin], lines[begin : starts[0]]
    # Each acceptance with the comments above it and its own lines.
    found: dict[tuple[str, str, str], tuple[Acceptance, list[str], list[str]]] = {}
    for it, start, end in zip(known, starts, [*starts[1:], rest], strict=True):
        last = max(n for n in range(start, end) if n == start or not _is_comment(lines[n])) + 1
        found[it.place] = (it, comments, lines[start:last])
        comments = lines[last:end]
    indent = " " * listed.start_mark.column
    for it in accepted:
        before, above, own = found.get(it.place, (None, [], []))
        changed = (indent + line for line in _dump([_entry(it)]).splitlines(keepends=True))
        edited += [*above, *(own if it == before else changed)]
    return "".join([*edited, *comments, *lines[rest:]])


def _is_comment(line: str) -> bool:
    return line.lstrip()[:1] in ("", "#")


def _leading_comments(text: str) -> str:
    return "".join(takewhile(_is_comment, text.splitlines(keepends=True)))


def _parse(text: str) -> AcceptedFile | None:
    try:
        return AcceptedFile.model_validate_json(json.dumps(yaml.safe_load(text), default=str))
    except (yaml.YAMLError, ValueError):
        return None


def _entry(accepted: Acceptance) -> dict[str, object]:
    return accepted.model_dump(exclude_none=True)


def _dump(data: object) -> str:
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=UNBROKEN)


def acceptor(folder: Path) -> str:
    """The name of the user who accepts: as in commits of the project, else that of the account."""
    with suppress(ProcessError):
        if name := (user_setting(folder, "user.name") or "").strip():
            return name
    with suppress(OSError, KeyError):  # no variable has it, and the account has no name
        return getpass.getuser()
    return "unknown"
