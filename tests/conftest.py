"""One thread per test process, as pytest-xdist runs as many processes as there are cores; the same draws every run."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    """A test's random numbers do not depend on the tests that ran before it."""
    torch.manual_seed(0)
