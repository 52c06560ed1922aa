"""Passes on the CPU run on PyTorch's threads, where it lends them (since 2.10)."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from ferrolayer.torch import functional as F

LENDS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 10)
pytestmark = pytest.mark.skipif(not LENDS, reason="this PyTorch lends its threads to nobody")

BEFORE = """
import os
import torch
from ferrolayer.torch import functional as F

def passes():
    torch.manual_seed(0)
    x = torch.randn(8, 32, 56, 56, requires_grad=True)
    w = torch.randn(256, 56, requires_grad=True)
    y = F.max_pool2d(x, 3, 2, 1)
    z = F.linear(F.avg_pool2d(x, 2, 1, 1)[..., :56], w)
    (y.sum() + z.square().sum()).backward()
    return [y.detach(), z.detach(), x.grad, w.grad]
"""


def run(code):
    subprocess.run([sys.executable, "-c", BEFORE + code], check=True, timeout=300)


def test_no_other_threads():
    run(
        """
torch.set_num_threads(1)
torch.randn(9, requires_grad=True).sum().backward()
threads = len(os.listdir("/proc/self/task"))
passes()
assert len(os.listdir("/proc/self/task")) == threads
"""
    )


def test_after_a_fork():
    """As a DataLoader's workers do: threads of the parent are not there."""
    run(
        """
torch.set_num_threads(3)
passes()
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    with torch.no_grad():
        x = torch.arange(8 * 32 * 56 * 56.0).view(8, 32, 56, 56)
        same = torch.equal(F.max_pool2d(x, 3, 2, 1), torch.nn.functional.max_pool2d(x, 3, 2, 1))
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
"""
    )


def test_results_do_not_depend_on_their_number():
    run(
        """
torch.set_num_threads(1)
expected = passes()
for threads in 2, 3, 7:
    torch.set_num_threads(threads)
    assert all(torch.equal(*pair) for pair in zip(expected, passes())), threads
"""
    )


def test_several_callers_at_once():
    x = torch.randn(8, 32, 56, 56)
    expected = F.avg_pool2d(x, 3)
    with ThreadPoolExecutor(4) as callers:
        results = list(callers.map(lambda _: F.avg_pool2d(x, 3), range(16)))
    assert all(torch.equal(result, expected) for result in results)
