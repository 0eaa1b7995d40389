"""The suite of faults, of which the documentation has the table."""

from __future__ import annotations

from tools.faults.findings import matches
from tools.faults.model import Fault, batches
from tools.faults.suite import FAULTS, selection


def test_faults_have_names_of_their_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_selection_has_one_fault_of_each_kind() -> None:
    kinds = [fault.kind for fault in selection()]
    assert kinds == list(dict.fromkeys(fault.kind for fault in FAULTS))


def test_a_template_stands_for_itself_and_its_gaps_for_any_text() -> None:
    assert matches("killed after … s (by …)", "killed after 1.5 s (by SIGKILL)")
    assert not matches("killed", "killed again")
    assert not matches("a.c", "abc")


def test_faults_that_change_the_whole_run_have_one_of_their_own() -> None:
    shared, alone = Fault(name="a", kind="k", product=None, harness=None, exits=(0,)), FAULTS[0]
    assert alone.is_alone
    assert batches([shared, alone, shared, shared], 2) == [[shared, shared], [shared], [alone]]
