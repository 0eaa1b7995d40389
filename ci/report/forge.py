"""What a forge or a CI system shows of results, by its own rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice, zip_longest

from ci.model.results import Failure, PlatformResult, Product, RunResult
from ci.report.failures import name_of
from ci.report.forms import Form
from ci.report.summary import Summary
from ci.util.invocation import naming_commands_for_others
from ci.util.text import strip_controls

# Characters of a page. GitHub and Gitea refuse a comment of more than 65,536, and Buildkite an
# annotation of more than 1 MiB; a longer one is not read on any of them.
LONGEST_PAGE = 65_000
# The first 10 of a step are shown, and the first 50 of a job:
# https://docs.github.com/en/rest/checks/runs
MOST_ANNOTATIONS = 10
LONGEST_ANNOTATION = 500  # characters


def page(summary: Summary, form: Form) -> str:
    """The summary as one page of Markdown.

    A comment begins with a marker, by which a job finds it and updates it in place. An annotation
    of Buildkite has a context for that.
    """
    head = "" if form is Form.BUILDKITE else f"{marker(summary.results.run.project)}\n\n"
    with naming_commands_for_others():
        return summary.markdown(LONGEST_PAGE, head)


def marker(project: str) -> str:
    """The first line of a comment; a forge does not show it."""
    return f"<!-- infini-ci: {re.sub(r'[^A-Za-z0-9_.-]', '_', project)} -->"


# Workflow commands: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
_DATA: Mapping[str, str] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Mapping[str, str] = {**_DATA, ":": "%3A", ",": "%2C"}


def error_commands(run: RunResult, is_file: Callable[[str], bool]) -> Iterator[str]:
    """Workflow commands of GitHub that mark the first failures, of each platform in turn.

    ``is_file`` is whether the source has a file of this path: others cannot be marked.
    """
    failed = [it for it in run.platforms if it.verdict.product is not Product.PASSED]
    by_platform = (
        [_annotation(it, failure, is_file) for failure in _failures(it)] for it in failed
    )
    in_turn = chain.from_iterable(zip_longest(*by_platform))
    yield from islice(filter(None, in_turn), MOST_ANNOTATIONS)


def _failures(result: PlatformResult) -> tuple[Failure | None, ...]:
    """The failures of a platform; ``None``, for its verdict, if it has none."""
    return result.failures or (None,)


def _annotation(
    result: PlatformResult, failure: Failure | None, is_file: Callable[[str], bool]
) -> str:
    evidence = next((it.text for it in result.verdict.evidence), "")
    if failure is None:
        name, message = result.verdict.product.replace("_", " "), evidence
    else:
        name = name_of(failure)
        message = failure.message or evidence
    properties = {"title": f"{result.label}: {name}"[:LONGEST_ANNOTATION]}
    file = ((failure and failure.test) or "").partition("::")[0]
    if file and is_file(file):
        properties = {"file": file, **properties}
    words = ",".join(f"{key}={_escape(text, _PROPERTY)}" for key, text in properties.items())
    return f"::error {words}::{_escape(message[:LONGEST_ANNOTATION] or name, _DATA)}"


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in strip_controls(text))
