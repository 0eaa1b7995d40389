"""``python -m codegen``."""

from __future__ import annotations

import os
import sys

from codegen.cli import EXIT_BAD_INPUT, PROGRAM, main


def start(program: str = PROGRAM) -> int:
    """Run the command line, with assertions; ``program`` is the command that the user typed."""
    if not __debug__:  # torchgen checks schemas with assertions
        if os.environ.pop("PYTHONOPTIMIZE", ""):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
        print(
            f"codegen: error: Python got -O, which skips the checks of schemas. Run: {program}",
            file=sys.stderr,
        )
        return EXIT_BAD_INPUT
    return main(program=program)


if __name__ == "__main__":
    sys.exit(start())
