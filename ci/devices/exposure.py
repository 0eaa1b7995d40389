"""How a container gets at devices, as options of the SDK's ``create``: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from docker.types import DeviceRequest

from ci.errors import ConfigError
from ci.plan import DevicePlan, Exposure


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """What of a vendor's device files and driver there is on an engine's machine.

    Attributes:
        files: device files
        mounts: folders and files of the driver
        groups: numbers of the groups that the device files are for
    """

    files: tuple[str, ...]
    mounts: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


def exposure_of(devices: DevicePlan) -> Exposure:
    """How devices are exposed: ``auto`` is what the vendor hands them out by."""
    if devices.exposure is not Exposure.AUTO:
        return devices.exposure
    return Exposure.REQUEST if devices.facts.request else Exposure.FILES


def check_exposure(platform: str, devices: DevicePlan) -> None:
    """Raise ``ConfigError`` for a way in which this vendor hands out none."""
    exposure, facts = exposure_of(devices), devices.facts
    possible = {Exposure.REQUEST: facts.request, Exposure.CDI: facts.cdi, Exposure.FILES: True}
    if not possible[exposure]:
        known = ", ".join(way for way, there in possible.items() if there)
        raise ConfigError(
            f"platforms.{platform}.devices.exposure: got '{exposure}', expected one of {known}"
        )


def container_devices(devices: DevicePlan, found: FoundFiles | None = None) -> dict[str, Any]:
    """Return the options; files stand as patterns where nobody has looked for them (``None``)."""
    facts = devices.facts
    options: dict[str, Any] = {"volumes": [lease_volume(devices)]}
    match exposure_of(devices):
        case Exposure.REQUEST:
            options["device_requests"] = [_request(devices)]
        case Exposure.CDI:
            names = [f"{facts.cdi}={uuid}" for uuid in devices.uuids or ("all",)]
            options["device_requests"] = [DeviceRequest(driver="cdi", device_ids=names)]
        case _:
            found = found or FoundFiles(files=facts.files, mounts=facts.mounts)
            options["devices"] = [f"{path}:{path}:rw" for path in found.files]
            options["volumes"] += [f"{path}:{path}:ro" for path in found.mounts]
            options["group_add"] = [str(number) for number in found.groups]
    if devices.privileged:
        options["privileged"] = True
    return options


def lease_volume(devices: DevicePlan) -> str:
    """The folder of the machine's leases, at the same place in every container."""
    return f"{devices.folder}:{devices.folder}"


def _request(devices: DevicePlan) -> DeviceRequest:
    """As ``--gpus``; ``utility`` brings the management library, without which nothing is found."""
    which = {"device_ids": list(devices.uuids)} if devices.uuids else {"count": -1}
    return DeviceRequest(capabilities=[["gpu", "compute", "utility"]], **which)
