"""The tests of the simulated device itself, for an environment that it is installed in."""

from __future__ import annotations

import pytest
import simulated_device

import torch

NAME = "musa"  # any name works; a process can load one


@pytest.fixture(scope="session", autouse=True)
def _load() -> None:
    simulated_device.load(NAME)
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _on_the_first_device() -> None:
    torch.accelerator.set_device_index(0)
