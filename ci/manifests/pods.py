"""What a cluster reports of its pods: the output of ``kubectl get pods -o json``.

The files of the agent say how its stages ended. What ended the agent itself, or kept it from its
start, only the cluster knows.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ci.errors import UsageError
from ci.facts.files import read_text_file
from ci.manifests.kubernetes import AGENT_CONTAINER, SYSTEM
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import PLATFORM_LABEL, RUN_LABEL
from ci.util.lines import parse_object
from ci.util.text import first_line

PODS_FILE = "pods.json"
OOM_KILLED = "OOMKilled"


class _Part(BaseModel):
    """A part of the API's document; most of its fields do not matter here."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class _Waiting(_Part):
    reason: str = ""
    message: str = ""


class _Terminated(_Part):
    exit_code: int
    reason: str = ""


class _State(_Part):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _Container(_Part):
    name: str
    image: str = ""
    image_id: str = Field("", alias="imageID")
    state: _State = _State()


class _Status(_Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Metadata(_Part):
    name: str = ""
    labels: dict[str, str] = {}


class _Pod(_Part):
    metadata: _Metadata
    status: _Status = _Status()


class _Pods(_Part):
    items: tuple[_Pod, ...]


def read_pods(folder: Path, run_id: str) -> dict[str, ExecutionFacts]:
    """Read how the pods of a run ended, by platform; empty if its folder has no such file.

    Raises ``UsageError`` for a file that is no such output.
    """
    path = folder / PODS_FILE
    if (text := read_text_file(path)) is None:
        return {}
    try:
        pods = _Pods.model_validate(parse_object(text)).items
    except ValueError as error:
        message = f"{path}: expected the output of kubectl get pods -o json: {error}"
        raise UsageError(message, remedy="Write it again, or remove it.") from None
    labelled = [(it.metadata.labels, it) for it in pods]
    mine = [(labels, it) for labels, it in labelled if labels.get(RUN_LABEL) == run_id]
    return {labels.get(PLATFORM_LABEL, ""): _pod_end(it) for labels, it in mine}


def _pod_end(pod: _Pod) -> ExecutionFacts:
    status, notes = pod.status, []
    if status.reason:  # Evicted, DeadlineExceeded
        notes.append(f"pod {pod.metadata.name}: {_reason(status.reason, status.message)}")
    for it in status.init_container_statuses:
        if (last := it.state.terminated) and last.exit_code:
            notes.append(
                f"container {it.name} ended with exit code {last.exit_code}: {last.reason}"
            )
    for it in (*status.init_container_statuses, *status.container_statuses):
        if (waiting := it.state.waiting) and waiting.message:  # for its image
            notes.append(f"container {it.name}: {_reason(waiting.reason, waiting.message)}")
    if status.phase == "Pending" and not notes:
        notes.append(f"pod {pod.metadata.name} has not started on any node")
    agent = next((it for it in status.container_statuses if it.name == AGENT_CONTAINER), None)
    end = agent.state.terminated if agent else None
    image = None
    if agent:
        image = pulled_image(agent.image, agent.image_id.rpartition("@")[2] or None)
    return ExecutionFacts(
        engine=SYSTEM,
        image=image,
        exit_code=end.exit_code if end else None,
        oom_killed=end is not None and end.reason == OOM_KILLED,
        notes=tuple(notes),
    )


def pulled_image(reference: str, digest: str | None = None) -> ImageFacts:
    """Describe an image of a pod; its node pulled it."""
    return ImageFacts(
        reference=reference, digest=digest, built=False, seconds=0.0, reason=f"pulled by {SYSTEM}"
    )


def _reason(reason: str, message: str) -> str:
    return ": ".join(filter(None, (reason, first_line(message))))
