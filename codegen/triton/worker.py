"""Compiles kernels in a process of its own, in a Python that has Triton.

Reads jobs as JSON lines and answers each with one line: the data for the launcher, or an error.
codegen itself may run in another Python.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import re
import sys
import traceback
from types import ModuleType
from typing import Any


def main() -> None:
    # stdout carries only the answers; all other output goes to stderr.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = compile_kernel(job)
        except Exception as error:
            answer = {"error": explain(error, job["path"])}
        print(json.dumps(answer), file=answers, flush=True)


def explain(error: BaseException | None, path: str) -> str:
    """Format the error and its causes, with their places in the file at ``path``.

    Other places are left out, because they are not in the author's code. An error without a message
    is shown with its last place.
    """
    lines: list[str] = []
    while error:
        places = traceback.extract_tb(error.__traceback__)
        own = [place for place in places if place.filename == path]
        lines += traceback.format_list(own if own or str(error) else places[-1:])
        lines += traceback.format_exception_only(error)
        error = error.__cause__
    return "".join(lines).strip()


def compile_kernel(job: dict[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(load(job["path"]), job["function"])
    check_parameters(function, job)
    source = ASTSource(
        fn=function,
        signature={name: job["types"].get(name, "constexpr") for name in function.arg_names},
        constexprs=job["constants"],
        attrs={
            (function.arg_names.index(name),): [["tt.divisibility", 16]]
            for name in job["divisible"]
        },
    )
    target = GPUTarget("cuda", job["target"], 32)
    compiled = triton.compile(source, target=target, options=job["options"])
    parameters = [name for name in function.arg_names if name in job["types"]]
    return {
        "cubin": base64.b64encode(compiled.asm["cubin"]).decode(),
        "parameters": parameters,
        "hidden": hidden_parameters(compiled.asm["ptx"], len(parameters)),
        **metadata_of(compiled.metadata),
    }


def check_parameters(function: Any, job: dict[str, Any]) -> None:
    given = {*job["types"], *job["constants"]}
    expected = set(function.arg_names)
    name, missing, unknown = job["function"], expected - given, given - expected
    if missing:
        raise TypeError(f"{name} also takes {sorted(missing)}; add them to types or constants")
    if unknown:
        raise TypeError(f"{name} takes no {sorted(unknown)}; remove them")


def hidden_parameters(ptx: str, passed: int) -> int:
    """Count the scratch pointers after the parameters; this depends on Triton's version."""
    # Global arrays, which also have braces, precede the kernel.
    head = ptx[ptx.index(".entry") :].partition("{")[0]
    types = re.findall(r"\.param \.(\w+)", head)
    hidden = types[passed:]
    if len(types) < passed or len(hidden) > 2 or any(each != "u64" for each in hidden):
        raise ValueError(f"the kernel takes {types}; expected {passed} and up to two pointers")
    return len(hidden)


def metadata_of(metadata: Any) -> dict[str, Any]:
    """Select the launcher's data; raise ``ValueError`` for features that it does not support."""
    for name, expected in (
        ("global_scratch_size", 0),
        ("profile_scratch_size", 0),
        ("num_ctas", 1),
        ("launch_cooperative_grid", False),
        ("launch_pdl", False),
    ):
        if getattr(metadata, name, expected) != expected:
            raise ValueError(f"{name} is {getattr(metadata, name)}; expected {expected}")
    return {
        "entry": metadata.name,
        "num_warps": metadata.num_warps,
        "shared": metadata.shared,
    }


@functools.cache
def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
