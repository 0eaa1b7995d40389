"""A build of selected operators never fails a test because of what it lacks."""

from __future__ import annotations

import narrowing
import pytest

import infini.ops


def test_a_test_or_its_fixture_that_uses_an_unselected_operator_is_skipped(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narrowing, "left_out_names", lambda: {"in_no_build"})
    message = "^operator not selected: this library was built without in_no_build$"
    for phase in narrowing.pytest_runtest_setup(request.node), narrowing.pytest_runtest_call():
        next(phase)
        with pytest.raises(AttributeError) as used:
            infini.ops.in_no_build  # noqa: B018
        with pytest.raises(pytest.skip.Exception, match=message):
            phase.throw(used.value)
