"""An operator's tensors are lent to it for the time of a call from Python; it may keep them all the same."""

import gc
import weakref

import keeping  # noqa: F401
import pytest
import torch

keep, kept, same = (getattr(torch.ops.keeping, name).default for name in ("keep", "kept", "same"))
pytestmark = pytest.mark.skipif(not hasattr(keep, "direct"), reason="this PyTorch lacks what direct functions take")
NEW = torch.zeros(1)


def used_again() -> None:
    """The memory of what was let go."""
    for size in range(1, 100):
        torch.full((size,), -1.0)


@pytest.mark.parametrize("elements", (4, 1 << 12), ids=("lent", "with a reference"))
@pytest.mark.parametrize("times", (1, 3))
def test_what_is_kept_lives(elements: int, times: int) -> None:
    objects = []
    for index in range(times):
        x = torch.full((elements,), 1.0 + index)
        objects.append(weakref.ref(x))
        assert torch.equal(keep.direct(x), x)
        del x
    gc.collect()
    used_again()
    for index in reversed(range(times)):
        # Other calls meanwhile have nothing to do with it.
        assert torch.equal(same.run(NEW), NEW)
        assert torch.equal(kept.direct(NEW), torch.full((elements,), 1.0 + index))
    gc.collect()
    assert all(reference() is None for reference in objects)


def test_what_is_given_back_is_the_dispatchers() -> None:
    x = torch.ones(3)
    assert same.direct(x) is None
    assert torch.equal(same.run(x), x)
