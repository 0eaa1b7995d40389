"""Configures torch's device tests for a backend, from what is known of it.

That is its ``coverage.json``, or the capabilities that its runs show.

It imports torch and ``torch.testing``, which needs ``expecttest``, and nothing of the generators.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import skip

from torch.testing._internal.common_device_type import ANY_DTYPE_ORDER
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

import torch

_EXPORT = "write it: python -m ci export --format capabilities --output FOLDER"
_TORCH_SLOT = "8"  # the slot of torch's backend, whose operators torch's tests call, too
_REMEDY = "write it with the torch that runs the tests: python -m infini.codegen backend-stubs"


def skips(coverage: str | Path, entries: Iterable[OpInfo]) -> dict[str, list[DecorateInfo]]:
    """Skip the entries of OpInfo that call an overload which ``coverage.json`` reports as missing.

    The result is the argument ``op_overrides`` of ``PrivateUse1TestBase.set_test_configs``: a skip
    for each full name of an entry, with the overloads and their reasons. An entry whose samples all
    fail on the CPU is skipped too, with the CPU's error.

    The overloads of an entry are those that its samples reach on the CPU, with the first data type
    of torch's ``OpDTypes.any_one``. Those of gradients, in-place and ``out=`` variants, and those
    that a kernel of torch calls itself, are not among them.

    Raises:
        ValueError: The file cannot be read, or is a report about another torch.
    """
    missing = _read_missing(Path(coverage))
    reasons = {each.full_name: _why_skipped(each, missing) for each in entries}
    return {name: [DecorateInfo(skip(reason))] for name, reason in reasons.items() if reason}


def reused_tests(
    capabilities: str | Path, platform: str, entries: Iterable[OpInfo]
) -> dict[str, Any]:
    """Choose the entries of OpInfo, and their dtypes, that a platform passes by its capabilities.

    ``capabilities`` is the file of ``python -m ci export --format capabilities``. The result are
    the arguments ``op_allowlist`` and ``op_overrides`` of ``set_test_configs``. An entry is allowed
    if the platform passes at least one operator that its samples reach on the CPU, and each of them
    that its suite has a test of. Dtypes without a pass are skipped with their reason.

    Raises:
        ValueError: The file cannot be read, or does not have the platform.
    """
    allowed, lacking, overrides = _read_platform(Path(capabilities), platform)
    names: list[str] = []
    decorators: dict[str, list[DecorateInfo]] = {}
    for entry in entries:
        operators = {name.partition(".")[0] for name in _reach(entry).overloads}
        if not operators & allowed or operators & lacking:
            continue
        names.append(entry.full_name)
        skipped = [
            DecorateInfo(skip(f"{name}: {reason}"), dtypes=dtypes)
            for name in sorted(operators & overrides.keys())
            for dtypes, reason in overrides[name]
        ]
        if skipped:
            decorators[entry.full_name] = skipped
    return {"op_allowlist": names, "op_overrides": decorators}


_Overrides = dict[str, list[tuple[tuple[torch.dtype, ...], str]]]  # dtypes and reasons by operator


def _read_platform(file: Path, platform: str) -> tuple[set[str], set[str], _Overrides]:
    """The operators that pass, those of which all tests fail or skip, and skipped dtypes."""
    try:
        platforms = {
            each["platform"]: each for each in json.loads(file.read_text("utf-8"))["platforms"]
        }
        if platform not in platforms:
            known = ", ".join(map(str, platforms))
            raise ValueError(f"{file}: got platform {platform!r}, expected one of {known}")
        found = platforms[platform]
        allowed = set(found["op_allowlist"])
        tested = {name.partition(".")[0] for name in found["slots"].get(_TORCH_SLOT, {})}
        overrides = {
            name: [(_dtypes(each["dtypes"]), each["reason"]) for each in every]
            for name, every in found["op_overrides"].items()
        }
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}; {_EXPORT}") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not a capabilities.json ({error!r}); {_EXPORT}") from None
    return allowed, tested - allowed, overrides


def _dtypes(names: Iterable[str]) -> tuple[torch.dtype, ...]:
    """The dtypes that this torch has."""
    found = (getattr(torch, name, None) for name in names)
    return tuple(each for each in found if isinstance(each, torch.dtype))


def _read_missing(file: Path) -> dict[str, str]:
    """The reason of each missing overload."""
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        version, overloads = report["torch_version"], report["overloads"]
        missing = {
            each["name"]: each["reason"] for each in overloads if each["status"] == "missing"
        }
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}; {_REMEDY}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: not a coverage.json ({error!r}); {_REMEDY}") from None
    if version != torch.__version__:
        expected = str(torch.__version__)
        raise ValueError(
            f"{file}: torch_version: got {version!r}, expected {expected!r}; {_REMEDY}"
        )
    return missing


class _Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]  # torch may be absent
    """Records the overloads that reach the dispatch keys of devices, also those that throw."""

    def __init__(self) -> None:
        super().__init__()
        self.overloads: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.overloads.add(func.name().removeprefix("aten::"))
        return func(*args, **kwargs or {})


@dataclass(frozen=True)
class _Reach:
    """What the samples of an entry do on the CPU."""

    overloads: frozenset[str] = frozenset()
    has_result: bool = True
    failure: str = ""


def _reach(entry: OpInfo) -> _Reach:
    """Run the samples of an entry with the first dtype of ``OpDTypes.any_one``."""
    dtype = next((each for each in ANY_DTYPE_ORDER if each in entry.dtypes), None)
    if dtype is None:  # torch makes no tests of it
        return _Reach()
    recorder, has_result, failure = _Recorder(), False, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in entry.sample_inputs("cpu", dtype):
            try:
                with recorder:
                    entry(sample.input, *sample.args, **sample.kwargs)
                has_result = True
            except Exception as error:
                failure = failure or f"{type(error).__name__}: {error}".partition("\n")[0]
    return _Reach(frozenset(recorder.overloads), has_result, failure)


def _why_skipped(entry: OpInfo, missing: Mapping[str, str]) -> str:
    reach = _reach(entry)
    found = sorted(reach.overloads & missing.keys())
    if found:
        return "missing: " + "; ".join(f"{name} ({missing[name]})" for name in found)
    return "" if reach.has_result else f"the CPU does not run it: {reach.failure or 'no samples'}"
