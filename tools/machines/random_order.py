"""A plug-in of pytest that runs the tests in another order, the same in all worker processes."""

from __future__ import annotations

import os
import random

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    random.Random(int(os.environ["INFINI_OPS_TEST_ORDER"])).shuffle(items)  # noqa: S311
