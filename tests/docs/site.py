"""Checks the built site: ``python -m tests.docs.site build/site``.

MkDocs itself checks links and anchors. This looks for what a browser would load from elsewhere.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# Links that a reader follows are no loads.
LOADS = re.compile(
    r"<(?:script|img|link|iframe|source|object|use)\b[^>]*?\b(?:src|href|data)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|@import\s+[\"']?((?:https?:)?//[^\"'\s;]+)|url\([\"']?((?:https?:)?//[^\"')]+)"
)


def loads(text: str) -> list[str]:
    """Addresses outside of the site that a page or a style sheet loads."""
    return ["".join(groups) for groups in LOADS.findall(text)]


def main() -> int:
    """Print what the site loads from elsewhere; 1 if it does."""
    folder = Path(sys.argv[1])
    wrong = [
        f"{path.relative_to(folder)}: loads {address}"
        for path in sorted([*folder.rglob("*.html"), *folder.rglob("*.css")])
        for address in loads(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(wrong) or f"{folder}/index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
