"""Where this program is."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
