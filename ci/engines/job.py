"""What an engine hands to the agent: the program itself and its job."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ci import agent
from ci.agent.__main__ import PROTOCOL
from ci.devices import PROBE, device_job
from ci.plan import RunPlan
from ci.platforms import PLATFORMS

MAIN = "from agent.__main__ import main\n\nmain()\n"


def agent_archive() -> bytes:
    """Return the agent as one file that any Python >= 3.8 can run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        for module in sorted(Path(agent.__file__).parent.glob("*.py")):
            archive.writestr(f"agent/{module.name}", module.read_bytes())
    return buffer.getvalue()


def job_document(
    plan: RunPlan,
    *,
    workspace: str,
    results: str,
    environment: Mapping[str, str],
    printed_bytes_per_s: int,
    compiler_cache: Mapping[str, object] | None = None,
    probe: tuple[str, str] = (sys.executable, str(PROBE)),
) -> bytes:
    """Return the agent's input file.

    ``environment`` goes on top of the agent's own; of output that comes faster than
    ``printed_bytes_per_s`` the agent prints a part, while the logs have it all.
    ``compiler_cache`` says where one lies (``ci.engines.compiler_cache``), ``probe`` which Python
    looks for devices, and by which program, where the agent is.
    """
    facts = PLATFORMS[plan.platform].devices
    document = {
        "protocol": PROTOCOL,
        "run_id": plan.run_id,
        "platform": plan.platform,
        "workspace": workspace,
        "results": results,
        "environment": dict(environment),
        "printed_bytes_per_s": printed_bytes_per_s,
        "stages": [
            {
                "name": stage.name,
                "kind": stage.kind,
                "command": stage.command,
                "environment": dict(stage.environment),
                "timeout_s": stage.timeout_s,
                "device": stage.device,
                "reruns": stage.reruns,
            }
            for stage in plan.stages
        ],
        "artifacts": [
            {"name": artifact.name, "path": artifact.path} for artifact in plan.artifacts
        ],
        "devices": device_job(plan.devices, probe) if plan.devices else None,
        "device_compiler": facts.compiler if facts else None,
        "compiler_cache": compiler_cache and dict(compiler_cache),
    }
    return json.dumps(document, indent=2).encode()
