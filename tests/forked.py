"""Runs the command line in a fork of the tests' process, which has imported nearly everything.

A new process takes 0.6 CPU-seconds to import it.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).resolve().parents[1]


def run_ci(
    *arguments: object,
    environment: Mapping[str, str] = os.environ,
    python: str = sys.executable,
    given: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m ci`` at the root of the sources.

    ``python`` makes the environments of the host engine. ``given``, on stdin, has to fit into a
    pipe: 64 KiB.
    """
    words = [str(argument) for argument in arguments]
    import_module(f"ci.commands.{words[0]}")
    stdin, into = os.pipe()
    os.write(into, given.encode())
    os.close(into)
    out, stdout = os.pipe()  # ends with the last process that it starts, as subprocess's does
    with TemporaryFile() as stderr:

        def run() -> None:
            _become_new((stdin, stdout, stderr.fileno()), environment)
            sys.executable = python
            sys.orig_argv, sys.argv = ["python", "-m", "ci", *words], ["ci", *words]
            runpy.run_module("ci", run_name="__main__", alter_sys=True)

        process = get_context("fork").Process(target=run)
        process.start()
        os.close(stdin)
        os.close(stdout)
        try:
            with os.fdopen(out, encoding="utf-8") as pipe:
                printed = pipe.read()
            process.join()
        except BaseException:
            process.kill()
            raise
        assert process.exitcode is not None
        stderr.seek(0)
        complained = stderr.read().decode()
        return subprocess.CompletedProcess(words, process.exitcode, printed, complained)


def _become_new(streams: Iterable[int], environment: Mapping[str, str]) -> None:
    """Give this process what a new one has of its own."""
    gc.freeze()  # else a search for garbage copies the memory that it shares
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", 1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    variables = dict(environment)  # may be `os.environ` itself
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(ROOT)
    tempfile.tempdir = None
