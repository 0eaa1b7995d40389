"""Which tests run on a mutant, in which order, and which of their failures count."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tools.mutants.plan import Mutant

SUITE = "tests/ops"
STOP = ("--maxfail=1", "--max-worker-restart=0")  # at the first failure, or death of a process
FAST = ("-m", "not complete")
NATIVE = tuple(f"{SUITE}/test_native_{name}.py" for name in ("values", "places", "ops"))
CPU = tuple(f"tests/cpu/test_{name}.py" for name in ("parallel", "halves"))
BOUNDARY = tuple(f"{SUITE}/test_boundary_{name}.py" for name in ("references", "objects"))
HARNESS = tuple(
    f"{SUITE}/test_{name}.py" for name in ("evidence", "harness", "oracles", "tally", "target")
)
# By the start of a path: the tests that most likely detect a fault there, to save time; and tests
# outside of the operator suite, for what the library of this machine does not show.
HINTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("src/cpu/", NATIVE, ("tests/native", *CPU)),
    ("src/core/", NATIVE, ("tests/native",)),
    ("src/bindings/", BOUNDARY, ("tests/native",)),
    ("src/", (), ("tests/native",)),
    ("codegen/", (f"{SUITE}/test_stub.py", f"{SUITE}/test_cpp.py"), ("tests/codegen",)),
    ("tests/ops/", HARNESS, ("tests/guards",)),
)


def stages(
    mutant: Mutant,
    tests: frozenset[str],
    overloads: frozenset[str],
    *,
    library_differs: bool = True,
) -> list[tuple[str, ...]]:
    """Return the stages to run until a test fails.

    A fault of an operator is tried on the tests of its overload, then on general ones. All others
    start with the tests that their file hints at. The whole suite follows, unless the generator
    with the fault generates the same library.
    """
    if mutant.site.operator is None:
        first, beyond = _hints(mutant.site.subject)
        is_about_suite = library_differs or mutant.site.subject.startswith(SUITE)
        suite = [first, (SUITE,)] if is_about_suite else []
        return [stage for stage in (*suite, (*FAST, *beyond) if beyond else ()) if stage]
    of_overloads = {test for test in tests if subject_of(test) in overloads}
    own = {test for test in of_overloads if subject_of(test) == mutant.site.subject}
    lists = {_file_of(test) for test in of_overloads}
    general = {_file_of(test) for test in tests} - lists
    return [tuple(sorted(stage)) for stage in (own, general, {SUITE}) if stage]


def beyond_suite(mutants: Sequence[Mutant]) -> tuple[str, ...]:
    """Return the tests outside of the suite that may have to run on these mutants."""
    sites = [mutant.site for mutant in mutants if mutant.site.operator is None]
    tests = sorted({test for site in sites for test in _hints(site.subject)[1]})
    return (*FAST, *tests) if tests else ()


def _hints(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = (hint[1:] for hint in HINTS if path.startswith(hint[0]))
    return next(found, ((), ()))


def subject_of(test: str) -> str | None:
    """The overload that a test is about: "abs.out" of ``test_overload[abs.out-float32-…]``."""
    match = re.search(r"\[([\w.]+)[-\]]", test)
    return match[1] if match else None


def _file_of(test: str) -> str:
    return test.partition("::")[0]


def failures_about(mutant: Mutant, failures: Mapping[str, str]) -> list[str]:
    """Return the failed tests that name the mutated operator, its own tests first.

    ``failures`` are the reports of all failed tests.
    """
    names = [re.escape(name) for name in mutant.names]
    mention = re.compile(rf"(?<![\w.])(?:{'|'.join(names)})(?![\w.])") if names else re.compile("")
    failed = [test for test, text in failures.items() if mention.search(test + text)]
    return sorted(failed, key=lambda test: (subject_of(test) != mutant.site.subject, test))
