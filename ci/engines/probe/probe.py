"""``python probe.py MANUFACTURER``: one line of JSON about its devices, by gpustack-runtime.

It runs as a process of its own, inside containers too, without the rest of ``ci`` and on
Python >= 3.10. A vendor's library that hangs or crashes ends only this process. A value that could
not be read is ``null``; gpustack-runtime itself leaves a zero, as if the device were idle.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from typing import Any

MEBIBYTE = 2**20
UNREAD = -1  # set before a usage query, to see whether it wrote a value

# Set before the import. By default the health check is off, and every device counts as healthy.
SETTINGS = {
    "GPUSTACK_RUNTIME_DETECT_NO_HEALTH_CHECK": "0",
    "GPUSTACK_RUNTIME_LOG_EXCEPTION": "1",
}


class LoggedErrors(logging.Handler):
    """Collects the errors that gpustack-runtime logs instead of raising them."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.errors.append(_error_text(record.exc_info[1]))


def main() -> None:
    """Print the answer; a failure is an answer, too, with status ``unknown``."""
    [manufacturer] = sys.argv[1:]
    try:
        answer = detect(manufacturer)
    except ImportError as error:
        answer = _unknown(f"gpustack-runtime cannot be imported: {error}")
    except Exception as error:
        answer = _unknown(_error_text(error))
    print(json.dumps(answer, default=str))


def detect(manufacturer: str) -> dict[str, Any]:
    """Return the status ``devices``, ``none``, or ``unknown`` with the reason."""
    os.environ.update(SETTINGS, GPUSTACK_RUNTIME_DETECT=manufacturer)
    logged = LoggedErrors()
    logger = logging.getLogger("gpustack_runtime")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(logged)
    logger.propagate = False

    from gpustack_runtime import detector as gpustack

    detector = gpustack._DETECTORS_MAP[gpustack.ManufacturerEnum(manufacturer)]
    if not detector.is_supported():
        if not detector.detect_pci_devices() and not logged.errors:
            return {"status": "none", "reason": f"no {manufacturer} device on the PCI bus"}
        reasons = "; ".join(logged.errors) or "no reason given"
        return _unknown(f"the management library of {manufacturer} does not load: {reasons}")
    found = gpustack.expand_mig_devices(_devices_with_usage(detector, logged))
    if not found:
        return {"status": "none", "reason": f"the driver of {manufacturer} knows no device"}
    uuids = Counter(device.uuid for device in found)
    if twice := [uuid for uuid, number in uuids.items() if number > 1]:
        return _unknown(f"several devices have the UUID '{twice[0]}'")
    reason = "; ".join(logged.errors) or None
    return {"status": "devices", "reason": reason, "devices": [_facts(d) for d in found]}


def _devices_with_usage(detector: Any, logged: LoggedErrors) -> list[Any]:
    """Return the devices with their usage; gpustack's ``detect`` hides a failed query."""
    devices = detector.detect_info() or []
    for device in devices:
        device.memory_used = device.cores_utilization = UNREAD
        for part in (device.appendix or {}).get("mig_devices") or []:
            part.update(memory_used=UNREAD, cores_utilization=UNREAD)
    try:
        detector.detect_usage(devices)
    except Exception as error:
        logged.errors.append(_error_text(error))
    return list(devices)


def _facts(device: Any) -> dict[str, Any]:
    appendix = dict(device.appendix or {})
    # A partitioned card itself computes nothing; one that is still listed has no partition.
    empty = appendix.get("mig") and not appendix.get("sliced")
    return {
        "index": device.index,
        "uuid": device.uuid or None,
        "name": device.name,
        "memory_total": device.memory * MEBIBYTE or None,
        "memory_used": _read(device.memory_used, MEBIBYTE),
        "utilisation": _read(device.cores_utilization),
        "driver": device.driver_version,
        "runtime": device.runtime_version_original or device.runtime_version,
        "health": "unhealthy" if empty else str(device.memory_status),
        "appendix": {name: value for name, value in appendix.items() if name != "mig_devices"},
    }


def _read(value: float, unit: int = 1) -> float | None:
    return None if value == UNREAD else value * unit


def _unknown(reason: str) -> dict[str, Any]:
    return {"status": "unknown", "reason": reason}


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
