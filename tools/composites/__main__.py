"""Writes codegen/composites.json: the operators that torch's composite functions call.

native_functions.yaml does not list them. Torch's profiler records the calls of one operator by
another while the samples of OpInfo run on the CPU, without gradients. It needs the package
expecttest, and two minutes. Run: python -m tools.composites
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections import defaultdict

from torch.autograd.profiler import profile
from torch.testing._internal.common_methods_invocations import op_db

import torch
from codegen.inspection.explanation import COMPOSITES

_SAMPLES = 12  # of each operator: more take longer and find no other calls
_DTYPES = (torch.float32, torch.complex64, torch.int64, torch.bool)


def _record() -> dict[str, set[str]]:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    composites = {name.partition(".")[0] for name in registered if name.startswith("aten::")}
    calls: dict[str, set[str]] = defaultdict(set)
    for operator in op_db:
        dtype = next((each for each in _DTYPES if operator.supports_dtype(each, "cpu")), None)
        if dtype is None:
            continue
        samples = []
        with contextlib.suppress(Exception):  # inputs that need a package that is not installed
            samples = list(operator.sample_inputs("cpu", dtype))[:_SAMPLES]
        with torch.no_grad(), profile(use_kineto=True) as recorded:
            for sample in samples:
                with contextlib.suppress(Exception):  # a sample that this machine does not support
                    operator(sample.input, *sample.args, **sample.kwargs)
        for event in recorded.function_events or ():
            if event.name in composites:
                calls[event.name.removeprefix("aten::")].update(
                    child.name.removeprefix("aten::")
                    for child in event.cpu_children
                    if child.name.startswith("aten::")
                )
    return calls


def main() -> None:
    warnings.simplefilter("ignore")
    lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(sorted(called))}"
        for name, called in sorted(_record().items())
        if called
    )
    COMPOSITES.write_text(
        f'{{\n"torch_version": "{torch.__version__}",\n"calls": {{\n{lines}\n}}\n}}\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
