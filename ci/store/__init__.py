"""The store: runs, platforms, stages and tests in one SQL database."""

from ci.store.store import Store, default_url

__all__ = ["Store", "default_url"]
