"""Runs a script and records the operators of torch that it calls, for ``python -m codegen trace``.

A program of its own, because it needs torch: ``python tracer.py RECORD SCRIPT [ARGUMENT ...]``.
RECORD gets a line of JSON as soon as something new is called, so that it is complete up to a crash:
``["aten::add.Tensor", ["float32"]]``. Its first line is ``null``, or the reason why torch can't be
imported.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import traceback
from pathlib import Path
from typing import Any


def main(record: str, script: str, *arguments: str) -> int:
    # Never closed: threads of the script may outlive this function.
    file = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        from torch.utils._python_dispatch import TorchDispatchMode

        import torch
    except ImportError as error:
        _append(file, str(error))
        return 1
    _append(file, None)
    seen: set[tuple[str, str]] = set()

    class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]  # torch may be absent
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            _note(file, seen, func, torch.utils._pytree.tree_leaves((args, kwargs)))
            return func(*args, **(kwargs or {}))

    _record_threads(Recorder)
    sys.argv[:] = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(script).resolve().parent)
    try:
        with Recorder():
            runpy.run_path(script, run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:  # shown as Python shows it, without the frames of this file
        frames = error.__traceback__
        while frames and frames.tb_frame.f_code.co_filename != script:
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _append(file: int, value: object) -> None:
    """Write one line at once: threads and forked processes share the file."""
    os.write(file, f"{json.dumps(value)}\n".encode())


def _note(file: int, seen: set[tuple[str, str]], func: Any, leaves: list[Any]) -> None:
    overload = func._schema.overload_name
    name = f"{func._schema.name}.{overload}" if overload else func._schema.name
    dtypes = {str(each.dtype).removeprefix("torch.") for each in leaves if hasattr(each, "dtype")}
    if new := {(name, dtype) for dtype in dtypes or {""}} - seen:
        seen.update(new)
        _append(file, [name, sorted(dtypes)])


def _record_threads(recorder: Any) -> None:
    """A dispatch mode holds for one thread: enter it in the threads of the script, too."""
    start = threading.Thread.start

    def start_recorded(thread: threading.Thread) -> None:
        run = thread.run

        def run_recorded() -> None:
            with recorder():
                run()

        thread.run = run_recorded  # type: ignore[method-assign]
        start(thread)

    threading.Thread.start = start_recorded  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
