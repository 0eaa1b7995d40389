"""What the wheel, the other artifacts and the benchmarks are worth."""

from __future__ import annotations

from collections.abc import Sequence

from ci.facts.sentences.sentence import MOST_NAMED, fact
from ci.util.text import counted, join_names

SHORT_DIGEST = 12  # digits


@fact
def artifact_missing(name: str, path: str) -> str:
    """Correct `artifacts` in `ci.yaml`, or the stage that makes the file."""
    return f"artifact {name} is missing: {path} does not exist"


@fact
def artifact_cut(name: str, files: int, path: str) -> str:
    """Choose fewer files in `artifacts` of `ci.yaml`."""
    return f"artifact {name} lacks {counted(files, 'file')} of {path}"


@fact
def given_tested(name: str, sha256: str, removed: int) -> str:
    """The file of `--wheel` or `--sdist` was tested. Modules that it has too were removed from the
    sources, so that no test imports them from there."""
    text = f"tested {name} (SHA-256 {sha256[:SHORT_DIGEST]}), which was made elsewhere"
    return text + (f"; {counted(removed, 'module')} removed from the sources" if removed else "")


@fact
def given_untested(name: str) -> str:
    """Let no stage or test install the project or change its installed files. `RECORD` of the wheel
    must have the hashes of all its files."""
    return f"nothing shows that the tests ran with {name} installed, which was made elsewhere"


@fact
def wheel_shadowed(names: Sequence[str]) -> str:
    """`python -m pytest` searches the sources first. To test the wheel, run `pytest`, set
    PYTHONSAFEPATH=1, keep packages in a folder `src`, or use `--wheel`."""
    shown = join_names(names, MOST_NAMED)
    return f"the tests import {shown} from the sources, not from the installed wheel"


@fact
def distribution_untested(names: Sequence[str]) -> str:
    """Install the wheel with `{wheel}` in the stage's command, and let no stage or test change its
    installed files. `RECORD` of the wheel must have the hashes of all its files."""
    shown = join_names(names, MOST_NAMED)
    return f"nothing shows that the tests ran with what was kept installed: {shown}"


@fact
def benchmarks_unreadable(stage: str, path: str, fault: str) -> str:
    """Correct `benchmarks` of the stage, or the option with which its tool writes the file."""
    return f"stage {stage}: no results of benchmarks in {path}: {fault}"


@fact
def benchmarks_without_value(stage: str, names: Sequence[str]) -> str:
    """Their tool reports that they failed or were skipped: read the stage's log."""
    shown = join_names(names, MOST_NAMED)
    return f"stage {stage}: {counted(len(names), 'benchmark')} without a value: {shown}"


@fact
def benchmarks_left_out(count: int) -> str:
    """Measure fewer benchmarks, or give them shorter names."""
    return f"{counted(count, 'benchmark')} left out: there are more than a result can have"
