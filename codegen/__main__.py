"""``python -m codegen``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    try:
        from codegen.cli import main
    except ModuleNotFoundError as error:
        sys.exit(
            f"codegen: error: {sys.executable} has no {error.name}; expected jinja2 and pyyaml. "
            f"Run: {sys.executable} -m pip install jinja2 pyyaml"
        )
    sys.exit(main())
