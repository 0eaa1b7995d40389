"""Configures torch's device tests for a backend, from its ``coverage.json``.

It imports torch and ``torch.testing``, which needs ``expecttest``, and nothing of the generators.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest import skip

from torch.testing._internal.common_device_type import ANY_DTYPE_ORDER
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

import torch

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


def _why_skipped(entry: OpInfo, missing: Mapping[str, str]) -> str:
    dtype = next((each for each in ANY_DTYPE_ORDER if each in entry.dtypes), None)
    if dtype is None:  # torch makes no tests of it
        return ""
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
    found = sorted(recorder.overloads & missing.keys())
    if found:
        return "missing: " + "; ".join(f"{name} ({missing[name]})" for name in found)
    return "" if has_result else f"the CPU does not run it: {failure or 'no samples'}"
