"""Writes the generated pages: ``python -m tests.docs``."""

from __future__ import annotations

import sys

from tests.docs.pages import pages
from tests.docs.reference import FOLDER, ROOT


def main() -> int:
    """Write what differs and remove what is no page any more."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for path in sorted(FOLDER.iterdir()):
        if path not in made:
            path.unlink()
            print(f"removed {path.relative_to(ROOT)}")
    for path, text in made.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
