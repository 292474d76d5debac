"""The tiny model that the tests of the engine and of its sessions share."""

from __future__ import annotations

import pytest
import torch

from tests.unit.builders_engine import tiny_model


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    torch.set_num_threads(1)
    return tiny_model()
