"""Run ``python -m ci``, or report how to install missing dependencies.

Whatever ends it otherwise than its commands do is a fault of this program, and exit code 3:
Python's own code for that, 1, is a failure of the product.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback

DEPENDENCIES = (
    "alembic",
    "changeforest",
    "docker",
    "filelock",
    "jinja2",
    "numpy",
    "pydantic",
    "rich",
    "sqlalchemy",
    "yaml",
)
REMEDY = """\
`python3 noxfile.py -s build-cpu` installs what it needs by itself. Or, in a virtual
environment with pip 25.1 or newer: `python -m pip install --group ci`"""
# What is imported and loaded lives to the end: looking through it again and again for garbage, as
# after 700 new objects by default, took 10 % of the time of `compare`.
OBJECTS_BETWEEN_COLLECTIONS = 50_000
FAULT = 3  # ExitCode.INFRASTRUCTURE, which may be what cannot be imported


def _main() -> int:
    if not __debug__:  # without docstrings `schema` has no descriptions
        if os.environ.pop("PYTHONOPTIMIZE", ""):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
        print("error: Python got -O, which skips assertions and docstrings", file=sys.stderr)
        print("Run: python -m ci", file=sys.stderr)
        return 2
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        from ci.cli import main

        # A CI system's cancel is an interrupt like any other: clean up, keep what there is.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return main()  # a command imports what it alone needs
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in DEPENDENCIES:
            return _fault(error)
        print(f"error: the Python package '{missing}' is not installed", file=sys.stderr)
        print(REMEDY, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while something was imported
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        return _fault(error)


def _fault(error: Exception) -> int:
    """Report an internal error with its location and traceback."""
    what = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    text = f"error: a fault of this program: {what}{where}\n"
    text += "Please report it, with the traceback below. It says nothing about the product.\n"
    text += "".join(traceback.format_exception(error))
    try:
        from ci.util.text import mask_credentials

        text = mask_credentials(text)
    except Exception as second:  # what cannot be imported may be the fault
        text = f"error: a fault of this program: {what}{where} ({type(second).__name__})\n"
    print(text, end="", file=sys.stderr)
    return FAULT


if __name__ == "__main__":
    sys.exit(_main())
