"""``python -m codegen``."""

from __future__ import annotations

import os
import sys

from codegen.cli import EXIT_BAD_INPUT, main


def _main() -> int:
    if not __debug__:  # torchgen checks schemas with assertions
        if os.environ.pop("PYTHONOPTIMIZE", ""):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
        print(
            "codegen: error: Python got -O, which skips the checks of schemas. "
            "Run: python -m codegen",
            file=sys.stderr,
        )
        return EXIT_BAD_INPUT
    return main()


if __name__ == "__main__":
    sys.exit(_main())
