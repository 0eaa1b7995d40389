"""Write the locks of a platform into its results, and compare them with the lock it was made of."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ci.facts.files import read_text_file
from ci.facts.package_lock import PACKAGE_LOCK, lock_changes, lock_text, package_lock
from ci.facts.sentences import on_rows
from ci.facts.stack_lock import STACK_LOCK, stack_lock
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Evidence
from ci.util.files import write_atomically
from ci.util.requirements import read_lock
from ci.util.text import join_names


def with_locks(plan: RunPlan, result: PlatformResult) -> PlatformResult:
    """Return a result whose folder has its locks; as it is, if no packages are recorded."""
    packages = package_lock(result)
    if packages is None:
        return result
    texts = {
        PACKAGE_LOCK: lock_text(packages),
        STACK_LOCK: json.dumps(stack_lock(result), indent=2, sort_keys=True) + "\n",
    }
    for name, text in texts.items():
        write_atomically(plan.results / name, text)
    paths = {name: f"{plan.results.name}/{name}" for name in texts}
    changes = {
        "artifacts": dict(sorted({**result.artifacts, **paths}.items())),
        "findings": (*result.findings, *_notes(plan, result)),
    }
    return result.model_copy(update=changes)


def _notes(plan: RunPlan, result: PlatformResult) -> Iterator[Evidence]:
    """Yield in what the packages differ from the lock that the environment was made of."""
    lock = read_lock(read_text_file(plan.host.requirements) or "")
    if lock is not None and (changes := [*lock_changes(lock, result)]):
        shown = [f"{it.component} {it.before} -> {it.after}" for it in changes]
        name = plan.host.requirements.name
        yield on_rows.reported(f"the packages differ from the lock {name}: {join_names(shown)}")
