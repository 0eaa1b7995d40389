"""``python -m infini.codegen``."""

from __future__ import annotations

import sys
from pathlib import Path

# First: the current folder, which comes with `-m`, may have another `codegen`.
sys.path.insert(0, str(Path(__file__).with_name("tree")))

from codegen.__main__ import start

if __name__ == "__main__":
    sys.exit(start("python -m infini.codegen"))
