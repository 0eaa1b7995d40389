"""What the caller of a platform and the program on its host send each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from ci.engines.ray.actor import RESULTS
from ci.errors import CiError
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.plan.network import folder_word


class HostStep(StrEnum):
    """What a host is asked to do for a platform."""

    PREPARE = "prepare"
    EXECUTE = "execute"
    RESUME = "resume"
    SETTLE = "settle"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """The results of a platform on its host, as one file."""

    size: int  # bytes
    digest: str  # SHA-256


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """The outcome of a step: a value, or an error."""

    value: ImageFacts | ExecutionFacts | str | None = None
    archive: Archive | None = None
    error: CiError | None = None
    interrupted: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """A step of a plan, whose files are on the host by now.

    ``trees`` are the digests of the folders that the step needs, ``files`` the contents of the
    plan's files. The plan has the paths that they had on the caller's machine.
    """

    plan: RunPlan
    trees: Mapping[str, str]
    files: Mapping[str, bytes]
    image: ImageFacts | None = None
    keep: bool = False


SOURCE = "source"
PROGRAM = "program"
WHEELHOUSE = "wheelhouse"
REQUIREMENTS = "requirements.txt"
CA_BUNDLE = "ca-bundle.pem"


def files_of(plan: RunPlan) -> dict[str, bytes]:
    """Return the contents of the files of this machine that a host needs."""
    files = {REQUIREMENTS: plan.host.requirements.read_bytes()}
    if plan.network.ca_bundle is not None:
        files[CA_BUNDLE] = plan.network.ca_bundle.read_bytes()
    return files


def plan_on_host(request: Request, folder: Path, trees: Path, python: str) -> RunPlan:
    """Return the plan with the paths of a host.

    ``folder`` has the files of the run, ``trees`` the folders that callers sent, by digest.
    """
    plan, network = request.plan, request.plan.network
    there = {name: trees / digest for name, digest in request.trees.items()}
    wheelhouse = network.wheelhouse and there.get(WHEELHOUSE)
    moved = {str(network.ca_bundle): folder / CA_BUNDLE}
    if network.wheelhouse and wheelhouse:
        moved[folder_word(network.wheelhouse)] = wheelhouse
    host_environment = {
        name: " ".join(str(moved.get(word, word)) for word in value.split())
        for name, value in network.host_environment.items()
    }
    return replace(
        plan,
        source=there.get(SOURCE, plan.source),
        packed=True,
        results=folder / RESULTS,
        host=replace(plan.host, python=python, requirements=folder / REQUIREMENTS),
        network=replace(
            network,
            ca_bundle=folder / CA_BUNDLE if network.ca_bundle else None,
            wheelhouse=wheelhouse,
            host_environment=host_environment,
        ),
        engine=EnginePlan(name=plan.engine.node_engine, kind=EngineKind(plan.engine.node_engine)),
        other_engines=(),
    )
