"""``run --select``: the operators that are built and tested, as far as this machine can tell.

What a name or a pattern stands for is known to the project's build. Here a selection is brought
into one form, and a likely typing error is reported before anything is built.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from pathlib import Path

from ci.errors import UsageError
from ci.model.tests import Suite
from ci.plan import source
from ci.plan.config import SelectionConfig
from ci.util.text import near_match

OPTION = "--select"
FILES = (".yaml", ".yml")  # what is selected is in a file, where the name ends so


def selected_operators(
    section: SelectionConfig | None,
    option: str | None,
    environ: Mapping[str, str],
    folder: Path,
    config: Path,
) -> str | None:
    """Return what ``option`` or, without it, the caller's variable selects; ``None``: everything.

    ``folder`` has the sources. A file among them is named relative to it, as a container has it
    elsewhere.

    Raises:
        UsageError: the project has no way to select, or a file is not copied with the sources.
    """
    if section is None:
        if option is None:
            return None
        message = f"{OPTION}: {config} does not say how the build learns what is selected"
        remedy = "Name there the environment variable that it reads: `selection: {variable: NAME}`."
        raise UsageError(message, remedy=remedy)
    text = (environ.get(section.variable, "") if option is None else option).strip()
    if text.endswith(FILES):
        return _file(text, folder.resolve(), section.variable if option is None else OPTION)
    words = text.replace(",", " ").split()
    return None if words in ([], ["all"]) else ",".join(words)


def _file(text: str, folder: Path, origin: str) -> str:
    """A file of the sources, relative to them; named from here or from there."""
    path = next((at / text for at in (Path.cwd(), folder) if (at / text).is_file()), None)
    if path is None:
        wrong = f"there is no file {text}"
    else:
        path = path.resolve()
        if path.is_relative_to(folder) and path.relative_to(folder) in source.files(folder):
            return path.relative_to(folder).as_posix()
        wrong = f"{path} is not among the sources that a run copies"
    raise UsageError(
        f"{origin}: {wrong}",
        remedy=f"Name a file of {folder} that git does not ignore, or the operators:"
        f" {OPTION} 'abs,add'.",
    )


def refuse_typos(selected: str, suite: Suite, section: SelectionConfig, folder: Path) -> None:
    """Raise ``UsageError`` for a name that a platform's contract lacks, but for one letter or two.

    What is like nothing that is known may be new: the build decides.
    """
    if selected.endswith(FILES):
        return
    known = {test.overload.partition(".")[0] for test in suite.operators}
    known |= {path.stem for pattern in section.files for path in folder.glob(pattern)}
    wrong = []
    for word in dict.fromkeys(selected.split(",")):
        if not fnmatch.filter(known, word) and (hint := near_match(word.strip("*"), known)):
            wrong.append(f"selected operators: '{word}' is no known operator{hint}")
    if wrong:
        remedy = "Correct it; patterns, such as 'fft_*', go in quotes. All operators:"
        raise UsageError("\n".join(wrong), remedy=f"{remedy} {OPTION} all.")
