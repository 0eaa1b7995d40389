"""From two references to what differs between what they name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.difference import difference, of_both
from ci.analysis.operators import Processor, read_processor
from ci.analysis.suite import Suite, on_processor, suite_of
from ci.comparison.pairs import one_platform
from ci.comparison.references import Runs, contract_file, find_both, find_runs
from ci.comparison.result import Comparison, PlatformComparison
from ci.comparison.revisions import Repository
from ci.comparison.runs import compare_runs
from ci.comparison.sides import Side, contract_side, run_side
from ci.comparison.times import NoTimes

if TYPE_CHECKING:
    from ci.analysis.contract import Contract
    from ci.store.store import Store

NO_TIMES = NoTimes(reasons=("a contract has no times",))


def compare(open_store: Callable[[], Store], source: Path, base: str, head: str) -> Comparison:
    """Compare what two references name; the store is opened only where one names a run.

    ``source`` is the project's folder, in whose repository branches and tags are looked up.
    """
    names = (base, head)
    contracts = [_contract(path) if path else None for path in map(contract_file, names)]
    known = [contract for contract in contracts if contract]
    if len(known) == len(names):
        return _with_contract([*map(_of_contract, names, known)])
    with open_store() as store:
        heads, repository = store.heads(), Repository(source)
        if not known:
            found = find_both(base, head, heads, repository)
            return compare_runs(store, repository, heads, *found)
        sides = [
            _of_contract(name, contract)
            if contract
            else _of_run(store, find_runs(name, heads, repository), known[0].platform)
            for name, contract in zip(names, contracts, strict=True)
        ]
    return _with_contract(sides)


def _contract(path: Path) -> Contract:
    from ci.analysis.contract import load_contract  # 0.1 s, which two runs do without

    return load_contract(path)


# With its tests, and the processor that they ran on.
_Tested = tuple[Side, Suite, Processor | None]


def _of_contract(name: str, contract: Contract) -> _Tested:
    return contract_side(name, contract), contract.suite, None


def _of_run(store: Store, runs: Runs, other: str) -> _Tested:
    platform = one_platform(runs, other)
    run_id = runs.runs[platform].run_id
    suite = suite_of(store.tests(run_id, platform))
    result = store.load(run_id).platform(platform)
    return run_side(store, runs, result), suite, read_processor(result.environment.get("processor"))


def _with_contract(sides: Sequence[_Tested]) -> Comparison:
    (base, before, first), (head, after, second) = sides
    before, after = on_processor(before, after, second), on_processor(after, before, first)
    are_there = base.missing is None and head.missing is None
    tests = difference(before, after) if are_there else None
    found = PlatformComparison(
        base=base,
        head=head,
        tests=of_both(tests) if tests and base.selected != head.selected else tests,
        times=NO_TIMES,
    )
    return Comparison(base=base.name, head=head.name, platforms=(found,))
