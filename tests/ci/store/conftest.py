"""A store to save into and to load from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ci.store.store import Store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store(store_url) as opened:
        yield opened
