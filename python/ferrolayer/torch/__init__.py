"""PyTorch layers whose kernels are written in Rust: drop-in modules, functions, and custom operators.

>>> import torch
>>> import ferrolayer.torch as fl
>>> model = torch.nn.Sequential(fl.MaxPool2d(2), torch.nn.Flatten(), fl.Linear(16, 10, activation="relu"))
>>> model(torch.randn(1, 1, 8, 8)).shape
torch.Size([1, 10])
>>> print(fl.replace(model))  # In a model of torch's own layers: swaps what it can
nothing to replace
"""

from . import functional
from ._library import DOOR
from ._operator import Kept, Operator, define, differentiably, pushforward
from ._windows import empty_like
from .add2 import add2
from .avg_pool import AvgPool2d
from .gaussian_pool import GaussianPool2d
from .linear import Linear
from .max_pool import MaxPool2d
from .prelu import PReLU
from .relu import ReLU
from .replace import Left, Replaced, Report, replace
from .scale_add import ScaleAdd, add_constant
from .stochastic_pool import StochasticPool2d

__all__ = [
    "DOOR",
    "AvgPool2d",
    "GaussianPool2d",
    "Kept",
    "Left",
    "Linear",
    "MaxPool2d",
    "Operator",
    "PReLU",
    "ReLU",
    "Replaced",
    "Report",
    "ScaleAdd",
    "StochasticPool2d",
    "add2",
    "add_constant",
    "define",
    "differentiably",
    "empty_like",
    "functional",
    "pushforward",
    "replace",
]
