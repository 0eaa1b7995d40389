"""Checks of this machine, for runs on the host engine."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec

from ci.engines.checks import Check, Finding, carry_out, ok, problem, unknown, warning
from ci.engines.devices import device_findings
from ci.engines.host.environment import base_python, passed_variables
from ci.engines.host.prerequisites import check_host_engine, check_python
from ci.model.plan import RunPlan
from ci.util.interpreters import Interpreter, import_torch, read_interpreter
from ci.util.process import TimeLimitError

NO_TORCH = "no known Python of this machine has torch"


def machine_findings(notes: str, plans: Sequence[RunPlan]) -> Iterator[Finding]:
    """Check this machine, where runs make a virtual environment in the temporary folder."""
    subject = "engine host"
    if notes:
        yield warning(
            subject,
            f"runs use this machine: {notes}",
            expected="that engine",
            remedy="Start it, correct or unset its address, or join the group of its socket.",
        )
    processors = len(os.sched_getaffinity(0))
    python = f"a virtual environment on this machine, Python {platform.python_version()}"
    yield ok(subject, f"{python}, {platform.machine()}, {processors} processors")
    yield from prerequisites_of(*plans)
    yield from carry_out(
        [Check(f"devices of {run.platform}", partial(device_findings, run)) for run in plans]
    )


def _torch_finding(run: RunPlan) -> Finding:
    """Find the torch of a platform whose requirements bring none."""
    subject, base = f"torch of {run.platform}", base_python(run.host)
    if base.is_seen:
        try:
            version, reason = import_torch(base.path)
        except TimeLimitError as error:  # of a cold network file system, not of the torch
            return unknown(subject, f"that of {base.path} was not imported: {error}")
        if version:
            return ok(subject, f"torch {version} of {base.path}")
        return problem(
            subject,
            f"that of {base.path} cannot be imported: {reason}",
            expected="a torch that works",
            remedy="Repair it, or name another Python: --python PATH, or python: of the platform in"
            " ci.site.yaml.",
        )
    where = f"{base.path} has no torch" if run.host.interpreter else NO_TORCH
    remedy = "Name the vendor's Python: --python PATH, or python: of the platform in ci.site.yaml."
    expected = "the vendor's torch, as the requirements bring none"
    return warning(subject, where, expected=expected, remedy=remedy)


def prerequisites_of(*plans: RunPlan) -> Iterator[Finding]:
    """Yield what the plans of one project need on this machine; checked before any download.

    A vendor's torch that cannot be imported is no failure of the product that would import it.
    """
    if find_spec("virtualenv") is None:  # nothing imports it: it is run as a program
        yield problem(
            "virtualenv",
            f"{sys.executable} does not have the package virtualenv",
            expected="the packages of the dependency group ci",
            remedy=f"{shlex.quote(sys.executable)} -m pip install --group ci",
        )
    yield from (_torch_finding(plan) for plan in plans if plan.host.sees_torch)
    environments = [{**passed_variables(plan), **plan.environment} for plan in plans]
    pythons = []
    for path in dict.fromkeys(base_python(plan.host).path for plan in plans):
        yield check_python(path)
        if isinstance(found := read_interpreter(path), Interpreter):
            pythons.append(found)
    yield from check_host_engine(plans[0].source, *environments, pythons=pythons)
