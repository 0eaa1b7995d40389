"""The store: runs, platforms, stages and tests in one SQL database."""

from ci.store.store import DATABASE, Store, default_url

__all__ = ["DATABASE", "Store", "default_url"]
