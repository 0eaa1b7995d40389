"""What an engine passes to the agent: the program, its job and its container's options."""

from __future__ import annotations

import io
import marshal
import os
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER
from pathlib import Path, PurePosixPath
from types import CodeType, MappingProxyType
from typing import Any, TypeVar, cast

from docker.types import Mount, Ulimit

from ci.engines.devices import CONTAINER_PROBE, PROBE, DeviceFiles, container_devices, device_job
from ci.engines.logs import STREAMED_BYTES_PER_S
from ci.facts.files import read_text_file
from ci.model.plan import (
    CONTAINER_CA_BUNDLE,
    CONTAINER_CREDENTIALS,
    CONTAINER_FOLDER,
    CONTAINER_GIVEN,
    CONTAINER_WHEELS,
    RunPlan,
)
from ci.model.platforms import PLATFORMS
from ci.protocol.agent_files import ENVIRONMENT
from ci.protocol.job import ENTER, CacheJob, DistributionJob, Job
from ci.util.files import PROGRAM_ROOT
from ci.util.lines import LARGEST_DOCUMENT, parse_object
from ci.util.text import join_names

Item = TypeVar("Item")

MAIN = "from ci.agent.__main__ import main\n\nmain()\n"


def agent_modules() -> dict[str, CodeType]:
    """Return the modules of the agent, with those of ``ci`` that they import, by their paths.

    They need only the standard library of Python 3.8.
    """
    paths = [PROGRAM_ROOT / "ci/__init__.py", *PROGRAM_ROOT.glob("ci/agent/*.py")]
    found: dict[str, CodeType] = {}
    for path in paths:  # which grows
        name = str(path.relative_to(PROGRAM_ROOT))
        if name not in found:
            found[name] = cast("CodeType", SourceFileLoader(name, str(path)).get_code(name))
            paths += [path.with_name("__init__.py"), *_imports(found[name])]
    return dict(sorted(found.items()))


def _imports(code: CodeType) -> Iterator[Path]:
    """Yield the modules of ``ci`` that a module imports."""
    for name in code.co_names:
        if name.startswith("ci."):  # of all names, only those of imported modules have dots
            module = PROGRAM_ROOT.joinpath(*name.split("."))
            if module.is_dir():  # whose modules are names as well
                yield from filter(Path.is_file, (module / f"{it}.py" for it in code.co_names))
            else:
                yield module.with_suffix(".py")


@cache
def agent_archive() -> bytes:
    """Return the agent as one file that any Python >= 3.8 can run.

    A Python of this one's version starts it in half the time, as it finds the modules compiled.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        for name, code in agent_modules().items():
            archive.writestr(name, (PROGRAM_ROOT / name).read_bytes())
            archive.writestr(f"{name}c", _compiled(code, name))
    return buffer.getvalue()


def _compiled(code: CodeType, name: str) -> bytes:
    """Return a module as Python caches it: never compared with its source, and named ``name``."""

    def renamed(code: CodeType) -> CodeType:
        constants = (renamed(it) if isinstance(it, CodeType) else it for it in code.co_consts)
        return code.replace(co_filename=name, co_consts=tuple(constants))

    unchecked, no_hash = b"\1\0\0\0", bytes(8)
    return MAGIC_NUMBER + unchecked + no_hash + marshal.dumps(renamed(code))


def job_document(
    plan: RunPlan,
    *,
    workspace: str,
    results: str,
    printed_bytes_per_s: int,
    environment: Mapping[str, str] = MappingProxyType({}),
    compiler_cache: CacheJob | None = None,
    probe: tuple[str, str] = (sys.executable, str(PROBE)),
    credentials: str | None = None,
    user: int | None = None,
    isolates_network: bool = True,
    given: str = CONTAINER_GIVEN,
) -> bytes:
    """Return the agent's input file.

    ``workspace`` (the copied tree), ``results``, ``compiler_cache``, ``probe`` and ``credentials``
    are paths where the agent runs. ``probe`` is a Python and the program with which it looks for
    devices. ``credentials`` is the file with the variables that hold passwords. ``environment`` is
    added to the agent's own. ``user`` runs the stages, if not the agent's own user does.
    ``isolates_network``: the engine can take the network away from stages. ``given`` is the folder
    of a distribution that was made elsewhere.
    """
    facts, distributions = PLATFORMS[plan.platform].devices, None
    if plan.distributions is not None:
        paths = [str(PurePosixPath(given, plan.given.path.name))] if plan.given else []
        distributions = DistributionJob(plan.distributions.folder, tuple(paths))
    job = Job(
        run_id=plan.run_id,
        platform=plan.platform,
        workspace=str(PurePosixPath(workspace, plan.subfolder)),
        results=results,
        environment=dict(environment),
        printed_bytes_per_s=printed_bytes_per_s,
        stages=tuple(
            replace(stage, isolated=stage.isolated and isolates_network) for stage in plan.stages
        ),
        artifacts=plan.artifacts,
        devices=device_job(plan.devices, probe, plan.shards) if plan.devices else None,
        device_compiler=facts.compiler if facts else None,
        compiler_cache=compiler_cache,
        credentials=credentials,
        user=user,
        distributions=distributions,
    )
    return job.to_json().encode()


AGENT = f"{CONTAINER_FOLDER}/agent.pyz"
JOB = f"{CONTAINER_FOLDER}/job.json"
# Isolated from the variables and packages of the code under test.
COMMAND = ("python3", "-I", AGENT, JOB)
ENTER_SHELL = ("python3", "-I", AGENT, ENTER)
# The capabilities of an agent with a user of its own: to start stages as theirs, and to end them.
CAPABILITIES = ("SETUID", "SETGID", "KILL")
# The only driver whose logs can always be read. The run is judged from this log: an engine whose
# own settings rotate logs must not lose its beginning. The agent limits what it prints.
LOG_DRIVER = "json-file"
LOG_OPTIONS = {"max-size": "1t", "max-file": "1", "compress": "false"}
TRUST_LABEL = "infini-ci.trust"  # of a cache's volume
CACHE_MOUNT = "/cache"
# Below the mount: a volume belongs to root if the image has no folder at the mount point.
CACHE_FOLDER = f"{CACHE_MOUNT}/ccache"
TRUSTED_MOUNT = "/trusted-caches"  # a folder for each more trusted cache, with its name
# Of a mounted cache. Otherwise the engine fills an empty volume with the image's files at its
# place: an image of an untrusted run could plant objects in a more trusted cache.
OWN_CACHE_MODE = "nocopy"
TRUSTED_CACHE_MODE = "ro,nocopy"
# Of the engine's memory, for a container without a limit of its own: the rest keeps the machine
# usable. A tenth of the smallest machine in use, 4 GiB, is enough for the engine and ssh.
MEMORY_TENTHS = 9


def container_options(
    plan: RunPlan,
    found: DeviceFiles | None = None,
    *,
    machine_memory: int | None = None,
    wheels: str | None = None,
    trusted_caches: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the options of ``docker create``, except for image and command.

    ``found`` are the device files that exist; without it the options hold patterns.
    ``machine_memory``, in bytes, gives the limit of a plan that has none. ``wheels`` is the volume
    with the files of its wheelhouse. ``trusted_caches`` are the volumes that exist among those that
    the plan reads.
    """
    container = plan.container
    ulimits = container.ulimits.items()
    volumes = [f"{plan.cache.name}:{CACHE_MOUNT}:{OWN_CACHE_MODE}"] if plan.cache else []
    volumes += [f"{name}:{TRUSTED_MOUNT}/{name}:{TRUSTED_CACHE_MODE}" for name in trusted_caches]
    volumes += [f"{wheels}:{CONTAINER_WHEELS}:ro,nocopy"] if wheels else []
    devices = container_devices(plan.devices, found) if plan.devices else {}
    labels = dict(container.labels)
    # New volumes with the content of the image's folders. The labels are for gc, if the container
    # is removed without its volumes.
    mounts = [Mount(folder, None, labels=labels) for folder in container.writable or ()]
    return {
        "name": container.name,
        "labels": labels,
        "user": str(agent_user(plan)),
        "environment": {**plan.network.environment, **plan.environment},
        "init": True,
        "cap_drop": ["ALL"],
        **({"cap_add": list(CAPABILITIES)} if has_own_user(plan) else {}),
        "security_opt": ["no-new-privileges"],
        "pids_limit": container.processes,
        "shm_size": container.shm_size_bytes,
        "mem_limit": container.memory_bytes
        or (machine_memory and machine_memory // 10 * MEMORY_TENTHS),
        "memswap_limit": container.memory_bytes,  # the same as memory alone: no swap
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ulimits],
        **({"read_only": True, "mounts": mounts} if mounts else {}),
        **devices,
        "volumes": [*volumes, *devices.get("volumes", ())],
    }


def by_place(plan: RunPlan, items: Mapping[str, Item]) -> dict[str, dict[str, Item]]:
    """Group items by the folder into which an engine copies them; names are relative to it.

    ``items`` have absolute paths. An engine copies nothing into a read-only root, although its
    volumes are writable.
    """
    writable = plan.container.writable
    places = ("/",) if writable is None else (*writable, CACHE_MOUNT)
    groups: defaultdict[str, dict[str, Item]] = defaultdict(dict)
    for name, item in items.items():
        place = max((it for it in places if Path(name).is_relative_to(it)), key=len)
        groups[place][os.path.relpath(name, place)] = item
    return groups


def isolation_notes(plan: RunPlan, who: str) -> Iterator[str]:
    """Yield a note on the stages whose network ``who`` cannot take away."""
    if names := [stage.name for stage in plan.stages if stage.isolated]:
        yield f"{who} leaves {join_names(names)} the network, despite `network: none`"


def is_privileged(plan: RunPlan) -> bool:
    """Return whether the container of a plan has all rights on its machine."""
    return plan.devices is not None and plan.devices.privileged


PRIVILEGED = "the container was privileged, as configured (devices.privileged)"


def has_own_user(plan: RunPlan) -> bool:
    """Return whether the agent runs as another user than the stages.

    Not with devices: the leases of all runs are files of one user, which stages inherit.
    """
    return plan.devices is None


def agent_user(plan: RunPlan) -> int:
    """Return the number of the user that runs the agent in a container."""
    return 0 if has_own_user(plan) else int(plan.container.user)


def credentials_of(plan: RunPlan) -> dict[str, str]:
    """Return the variables with passwords; those that the platform sets itself are left out."""
    variables = plan.network.credentials.items()
    return {name: value for name, value in variables if name not in plan.environment}


def container_files(plan: RunPlan) -> dict[str, Path]:
    """Return the files, owned by root, that a container gets in addition to agent and job."""
    files = {CONTAINER_PROBE[1]: PROBE} if plan.devices is not None else {}
    if plan.network.ca_bundle is not None:
        files[CONTAINER_CA_BUNDLE] = plan.network.ca_bundle
    if plan.given is not None:
        files[f"{CONTAINER_GIVEN}/{plan.given.path.name}"] = plan.given.path
    return files


def container_folders(plan: RunPlan) -> dict[str, int]:
    """Return the folders outside of the sources that a run writes to, with their owners."""
    stages = int(plan.container.user)
    agent = agent_user(plan)
    return {
        plan.container.results: agent,
        **({CACHE_FOLDER: stages} if plan.cache else {}),
        **({str(Path(CONTAINER_CREDENTIALS).parent): agent} if credentials_of(plan) else {}),
    }


def container_job(plan: RunPlan) -> bytes:
    """The agent's input file in a container."""
    workspace, cache = plan.container.workspace, plan.cache
    caches = None
    if cache is not None:
        caches = CacheJob(
            CACHE_FOLDER,
            base=workspace,
            cold=cache.cold,
            trusted=tuple(f"{TRUSTED_MOUNT}/{name}/ccache" for name in cache.trusted),
        )
    return job_document(
        plan,
        workspace=workspace,
        results=plan.container.results,
        printed_bytes_per_s=STREAMED_BYTES_PER_S,
        compiler_cache=caches,
        probe=CONTAINER_PROBE,
        credentials=CONTAINER_CREDENTIALS if credentials_of(plan) else None,
        user=int(plan.container.user) if has_own_user(plan) else None,
    )


def is_cache_empty(results: Path) -> bool:
    """Tell whether the agent reports that the cache was empty after the run's stages."""
    text = read_text_file(results / ENVIRONMENT, LARGEST_DOCUMENT) or ""
    try:  # the container wrote it: it may hold anything
        cache = parse_object(text).get("compiler_cache")
    except ValueError:
        return False
    return isinstance(cache, dict) and cache.get("empty") is True


def cache_labels(plan: RunPlan) -> dict[str, str]:
    """Return the labels of the volume with a plan's compiler cache."""
    return {**plan.container.shared_labels, TRUST_LABEL: str(plan.trust)}
