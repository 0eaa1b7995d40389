"""Lines of a per-test log, as pytest-reportlog writes them."""

from __future__ import annotations

import json


def report(node_id: str, when: str, outcome: str = "passed", **more: object) -> str:
    fields = {"$report_type": "TestReport", "nodeid": node_id, "when": when, "outcome": outcome}
    return json.dumps({**fields, "duration": 0.5, "longrepr": None, **more})


def phases(node_id: str, call: str = "passed") -> list[str]:
    outcomes = (("setup", "passed"), ("call", call), ("teardown", "passed"))
    return [report(node_id, when, outcome) for when, outcome in outcomes]


def finish(status: object = 0) -> str:
    return json.dumps({"$report_type": "SessionFinish", "exitstatus": status})


FINISH = finish()
