"""The rules of all gates: the exit codes of ``run``, ``report``, ``compare`` and ``history``.

To add a rule, add it to ``_LISTED`` at its rank, and its name to the gates that check it. The first
broken rule decides the exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from ci.errors import ExitCode
from ci.gates.regression import Judgement, is_fault
from ci.model.results import PlatformResult
from ci.model.verdicts import Product, Verdict


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a gate looks at; each command has the part that its rules need."""

    verdicts: Sequence[Verdict] = ()
    """Those of the rows that count."""
    judgements: Collection[str] = ()
    """What a comparison or a history found, whatever it is of."""
    gaps: Sequence[str] = ()
    """Why something cannot be judged."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a gate demands."""

    name: str
    """Also the word for ``--fail-on``."""
    broken_by: str
    """What breaks it, as help writes it."""
    exit_code: ExitCode
    is_broken: Callable[[Subject], bool]


def _judged(judgement: Judgement, broken_by: str) -> Rule:
    """A rule against the changes of one judgment."""
    return Rule(
        name=judgement,
        broken_by=broken_by,
        exit_code=ExitCode.REGRESSION,
        is_broken=lambda it: judgement in it.judgements,
    )


_LISTED = (
    # A product failure outranks an infrastructure failure: a second try of the other platforms
    # cannot change it.
    Rule(
        name="product",
        broken_by="the build or the tests of a platform failed",
        exit_code=ExitCode.PRODUCT_FAILURE,
        is_broken=lambda it: any(verdict.product is Product.FAILED for verdict in it.verdicts),
    ),
    Rule(
        name="infrastructure",
        broken_by="a platform has no result because of an infrastructure failure",
        exit_code=ExitCode.INFRASTRUCTURE,
        is_broken=lambda it: not it.verdicts or any(map(is_fault, it.verdicts)),
    ),
    Rule(
        name="complete",
        broken_by="the result of a platform is incomplete",
        exit_code=ExitCode.PRODUCT_FAILURE,
        is_broken=lambda it: any(verdict.product is not Product.PASSED for verdict in it.verdicts),
    ),
    _judged(
        Judgement.REGRESSION,
        "tests vanished, newly fail or newly skip, a platform ended worse, or a cost rose for good",
    ),
    _judged(Judgement.SUSPECTED, "a cost may have risen"),
    _judged(
        Judgement.ENVIRONMENT,
        "a cost rose for good together with a change of the environment, such as a new compiler",
    ),
    Rule(
        name="comparable",
        broken_by="the results of a platform cannot be compared",
        exit_code=ExitCode.USAGE,
        is_broken=lambda it: bool(it.gaps),
    ),
    Rule(
        name="measured",
        broken_by="no stage of a platform completed in any run",
        exit_code=ExitCode.PRODUCT_FAILURE,
        is_broken=lambda it: bool(it.gaps),
    ),
)
RULES = {rule.name: rule for rule in _LISTED}
"""By name, the most important first."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The rules that commands check."""

    commands: Sequence[str]
    """As a user writes them."""
    always: Sequence[str] = ()
    choices: Sequence[str] = ()
    """The words for ``--fail-on``. The first is always checked."""

    def rules(self, fail_on: str | None = None) -> list[Rule]:
        """The rules to check, in their order."""
        names = {*self.always, *self.choices[:1], fail_on}
        return [rule for rule in RULES.values() if rule.name in names]

    def exit_code(self, subject: Subject, fail_on: str | None = None) -> ExitCode:
        broken = (it.exit_code for it in self.rules(fail_on) if it.is_broken(subject))
        return next(broken, ExitCode.PASSED)


RESULTS = Gate(
    commands=("run", "report --check"),
    always=("product", "infrastructure", "complete"),
)
COMPARISON = Gate(
    commands=("compare --fail-on",),
    always=("comparable",),
    choices=(Judgement.REGRESSION, Judgement.SUSPECTED),
)
HISTORY = Gate(
    commands=("history --check",),
    always=("measured",),
    choices=(Judgement.REGRESSION, Judgement.ENVIRONMENT),
)
GATES = (RESULTS, COMPARISON, HISTORY)


def exit_code(results: Iterable[PlatformResult]) -> ExitCode:
    """The exit code of a run with these results."""
    return RESULTS.exit_code(Subject(verdicts=[it.verdict for it in results]))
