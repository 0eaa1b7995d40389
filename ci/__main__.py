"""``python -m ci``, also where the dependencies are not installed: then it says how to."""

from __future__ import annotations

import gc
import os
import signal
import sys

DEPENDENCIES = (
    "alembic",
    "changeforest",
    "docker",
    "filelock",
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


def _interrupt(_signal: int, _frame: object) -> None:
    """A CI system's cancel is an interrupt like any other: clean up, keep what there is."""
    raise KeyboardInterrupt


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

        signal.signal(signal.SIGTERM, _interrupt)
        return main()  # a command imports what it alone needs
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in DEPENDENCIES:
            raise
        print(f"error: the Python package '{missing}' is not installed", file=sys.stderr)
        print(REMEDY, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # while something was imported
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(_main())
