"""``python -m ci gc``: removes what earlier runs left, by age and size, and only our own."""

from ci.gc.command import add_gc

__all__ = ["add_gc"]
