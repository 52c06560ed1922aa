"""What all tests share: the devices to run on, and how results are compared."""

from __future__ import annotations

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a GPU that PyTorch can use")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="PyTorch sees no GPU here")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Each kind of device in turn."""
    return request.param


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same numbers in each run."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    # Code that inductor of torch 2.4 compiled with -ffast-math has the processor flush subnormal numbers once loaded.
    torch.set_flush_denormal(False)
