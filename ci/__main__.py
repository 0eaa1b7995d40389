"""``python -m ci``, also where the dependencies are not installed: then it says how to."""

from __future__ import annotations

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


def _interrupt(_signal: int, _frame: object) -> None:
    """A CI system's cancel is an interrupt like any other: clean up, keep what there is."""
    raise KeyboardInterrupt


def _main() -> int:
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


if __name__ == "__main__":
    sys.exit(_main())
